// Mean and variance in one look, where what they are of stays in no cache.
//
//   s[c] = sum(n,h,w: x[n,c,h,w])                    p[n,c] = sum(h,w: x[n,c,h,w])
//   v[c] = sum(n,h,w: (x[n,c,h,w] - s[c]/M)^2)       q[n,c] = sum(h,w: (x[n,c,h,w] - p[n,c]/K)^2)
//                                              =>    s[c] = sum(n: p[n,c])
//                                                    v[c] = sum(n: q[n,c] + K*(p[n,c]/K - s[c]/M)^2)
//
// with K = H*W, M = N*K: v needs s complete, so x is read twice; q needs the part of its own tile. The parts of a variance are put
// together as Chan, Golub and LeVeque do (Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979): no term is
// a difference of large squares, and the error is no larger than that of the two looks.
//
// Needs: a program of one direction in normal form, sizes for all dims. Keeps: tensors and their numbers, new ones come behind; values as
// real numbers. Does nothing where one result's terms fit the cache, or the parts do not, or the sum has a condition.
#pragma once
#include "fusion/plan.h"

namespace xhat {

Program split_moments(const Program& p, const DimValues& sizes, const FusionOptions& options);

}  // namespace xhat
