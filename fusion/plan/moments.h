// Mean and variance in one look, where what they are of stays in no cache.
//
//   s[c] = sum(n,h,w: x[n,c,h,w])                    f[n,c] = x[n,c,0,0]
//   v[c] = sum(n,h,w: (x[n,c,h,w] - s[c]/M)^2)       p[n,c] = sum(h,w: x[n,c,h,w] - f[n,c])
//                                                    q[n,c] = sum(h,w: (x[n,c,h,w] - f[n,c] - p[n,c]/K)^2)
//                                              =>    r[c] = sum(n: K*(f[n,c] - f[0,c]) + p[n,c])
//                                                    s[c] = M*f[0,c] + r[c]
//                                                    v[c] = sum(n: q[n,c] + K*(f[n,c] - s[c]/M + p[n,c]/K)^2)
//
// with K = H*W, M = N*K: v needs s complete, so x is read twice; q needs the part of its own tile. The parts of a variance are put
// together as Chan, Golub and LeVeque do (Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979), and all is
// counted from the first term of a part, as in their shifted algorithm: no sum is of large terms whose digits the variance needs. In f32,
// the mean of 400,000 terms around 1e6 with deviation 1 is off by one rounding, 0.03, where the sum of the terms themselves loses 0.9.
// The shift is 0 where the first term is not finite or very large: then what is infinite stays so.
//
// Needs: a program of one direction in normal form, sizes for all dims. Keeps: tensors and their numbers, new ones come behind; values as
// real numbers. Does nothing where one result's terms fit the cache, or the parts do not, or the sum has a condition.
#pragma once
#include "fusion/plan/plan.h"

namespace xhat {

Program split_moments(const Program& p, const DimValues& sizes, const FusionOptions& options);

}  // namespace xhat
