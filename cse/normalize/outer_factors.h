// Numbers that are the same for all terms of a running sum stand outside of it.
//
//   y[n,t] = sum(k in 0..t+1: x[n,k]/f32(t + 1))      =>      y[n,t] = sum(k in 0..t+1: x[n,k])/f32(t + 1)
//
// So that each of these sums is the one before and a term more. Of sums whose ranges depend on outer axes, factors and divisors made of such
// axes, dims and literals, and above 0: over nothing, 0/0 would not be 0.
// Exact but for the rounding of these numbers; f16 and bf16, which are rounded where a sum ends, stay.
// Needs: calls expanded, conditions that are ranges written as such (gather). Keeps: outputs.
#pragma once
#include "expr/core/program.h"

namespace xhat {

Program with_numbers_outside(const Program& p);

}  // namespace xhat
