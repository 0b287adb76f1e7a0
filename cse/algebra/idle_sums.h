// Multiplied out, with all sums of one term, the backward tells what no sum by itself tells: which of its sums are zero, and which sums over
// a condition that data decide (the tangent of a maximum) cancel in all that is asked for. These go.
//
//   t_m[n] = sum(d if x[n,d] == m[n]: t_x[n,d])    s[n] = sum(k: e[n,k]*(t_x[n,k] - t_m[n]))    g[n,d] = t_x[n,d] - t_m[n] - s[n]/sum(k: e[n,k])
//     =>                                           s[n] = sum(k: e[n,k]*t_x[n,k])               g[n,d] = t_x[n,d] - s[n]/sum(k: e[n,k])
//
// So does a sum that is one term of what the forward has: sum(k: e[n,k]*(1 + t[n] - s[n]/z[n])) is z[n] where s[n] is t[n]*z[n].
//
// Only asked where there are such conditions, and one of them goes. Nothing is written multiplied out.
#pragma once
#include "expr/core/program.h"

namespace xhat {

Program without_idle_sums(const Program& p);

}  // namespace xhat
