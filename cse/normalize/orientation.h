// Definitions that hold a tensor from its end are turned round, with the reads of them.
//
//   s[n] = sum(d: x[N-1-n,d])   y[n] = f(s[N-1-n])     =>     s[n] = sum(d: x[n,d])   y[n] = f(s[n])
//
// A kernel computes what its members need tile by tile: s and y, from opposite ends, would be two kernels. An axis is turned if nothing
// in the body takes it from anything then; index expressions are tidied on the way (N-1-(N-1-n) is n).
// So is a reduction's axis, where the order of its terms is open: max(d: t[n,D-1-d]) is max(d: t[n,d]), and so is a running sum's.
// Exact but for the order of addition. Keeps: outputs. Needs: calls expanded.
#pragma once
#include "expr/core/program.h"

namespace xhat {

Program in_one_direction(const Program& p);

}  // namespace xhat
