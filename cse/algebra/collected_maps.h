// Like terms of the backward's maps, once its definitions have been put together: the normal form multiplies nothing out.
//
//   g[n,d] = s[n]*((q[n] - 1)*t[n,d] - q[n]*(t[n,d] - 0.3))    =>    g[n,d] = s[n]*(0.3*q[n] - t[n,d])
//
// A sum within a sum is opened, and what stands before the same factors with all axes is added up, where the whole costs less then and
// keeps its digits (accuracy.h). Opened is what has a number among its terms, and what has rounded all of them: a difference of values that
// are read is exact, and stays. What decides a branch stays, too, and what an extreme is subtracted from (whole_differences.h).
#pragma once
#include "expr/core/program.h"

namespace xhat {

// Real-only. In maps of the backward, and what its sums add up.
Program with_collected_maps(const Program& p);

}  // namespace xhat
