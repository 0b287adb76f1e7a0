// Sums over nothing are 0, whatever they were multiplied with.
//
//   plain   grad_g[c] = sum(n: dy[n,c]*x[n,c]/v[c])         0 where N = 0, even if v[c] is 0 or nan then
//   pulled  s[c] = sum(n: dy[n,c]*x[n,c])     grad_g[c] = s[c]/v[c]
//     =>    grad_g[c] = if 0 < N then s[c]/v[c] else 0
//
// The reduction algebra calculates as if every sum had a term. Here a product of a sum and something that may be
// infinite or nan where the sum is empty is guarded: by the sizes, which costs a kernel nothing since it knows
// them; or, where data or other axes say how many terms there are, by whether the sum is 0. No guard stands
// where an axis shows that there are terms: grad_x[n,c] exists for N, C >= 1 only.
//
// Taken to be finite: inputs, cotangents, and what cannot become infinite but by overflow. A gradient that was
// nan before the algebra, as of a mean over nothing, may be 0 after it.
// Needs: the normal form of auto_inliner; the last step over it that is real-only.
#pragma once
#include "expr/core/program.h"

namespace xhat {

Program guard_empty_sums(const Program& p);

}  // namespace xhat
