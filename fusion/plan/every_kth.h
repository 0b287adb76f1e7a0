// A reduction that is read at every k-th place alone is computed there alone.
//
//   s[d in 0..D] = sum(e: f[d,e])                                      s_kth[u in 0..D/2] = sum(e: f[2*u+1,e])
//   y[d] = if (d+1)%2 == 0 then s[d] else 0                 =>         y[d] = if (d+1)%2 == 0 then s_kth[d/2] else 0
//
// The gradients of dilated windows that move by steps, of which most places have none: of three axes by 2 an eighth is left.
//
// Needs: a program of one direction in normal form, sizes for all dims, divisors that are numbers (with_numbers_as_divisors). Keeps: every value
// and every bit. Does nothing under a policy other than full.
#pragma once
#include "fusion/plan/plan.h"

namespace xhat {

Program every_kth_alone(const Program& p, const DimValues& sizes, const PlanRequest& request);

}  // namespace xhat
