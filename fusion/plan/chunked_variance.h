// Mean and variance in one pass (Chan et al.), for tensors that are larger than the last-level cache.
//
//   s[c] = sum(n,h,w: x[n,c,h,w])                    f[n,c] = x[n,c,0,0]
//   v[c] = sum(n,h,w: (x[n,c,h,w] - s[c]/M)^2)       p[n,c] = sum(h,w: x[n,c,h,w] - f[n,c])
//                                                    q[n,c] = sum(h,w: (x[n,c,h,w] - f[n,c] - p[n,c]/K)^2)
//                                              =>    r[c] = sum(n: K*(f[n,c] - f[0,c]) + p[n,c])
//                                                    s[c] = M*f[0,c] + r[c]
//                                                    v[c] = sum(n: q[n,c] + K*(f[n,c] - s[c]/M + p[n,c]/K)^2)
//
// with K = H*W, M = N*K. v needs the complete s, so x is read twice; q needs only the p of its own tile. The variances of chunks are combined
// as by Chan, Golub and LeVeque (Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979), with the first term
// of each chunk as the shift: no sum has large terms whose low digits the variance needs. In f32,
// the mean of 400,000 terms around 1e6 with deviation 1 is off by one rounding, 0.03, where the sum of the terms themselves loses 0.9.
// The shift is 0 where the first term is not finite or very large: then what is infinite stays so.
//
// Needs: a program of one direction in normal form, sizes for all dims. Keeps: tensors and their numbers (new ones are appended), and values
// as real numbers. Does nothing where the terms of one result fit the cache, the chunks do not, the sum has a condition, or the policy is
// another than full.
#pragma once
#include "fusion/plan/plan.h"

namespace xhat {

Program variance_by_chunks(const Program& p, const DimValues& sizes, const PlanRequest& request);

}  // namespace xhat
