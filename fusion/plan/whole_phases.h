// A sum whose terms depend on the remainder of the result's index is computed for as many places as make whole phases; what lies behind the
// result's end is not read.
//
//   y[t in 0..515] = sum(c, r if (t+1-2*r) % 2 == 0: x[c,(t+1-2*r)/2 else 0] * w[c,r])
//     =>   y_whole[t in 0..516] = the same         y[t] = y_whole[t]
//
// A kernel walks an axis by quotient and remainder only where they come out even; otherwise each place decides for each term whether it counts.
// Transposed convolutions to an odd size, gradients of strided ones of an odd size. A temporary becomes larger; of what leaves the program there
// is a copy, which is little beside sums of many terms. Not where the index only chooses the rows of one operand in another order: shuffled channels.
//
// Needs: a program of one direction in normal form, sizes for all dims, divisors that are numbers (with_numbers_as_divisors). Keeps: every value
// and every bit. Does nothing under a policy other than full.
#pragma once
#include "fusion/plan/plan.h"

namespace xhat {

// By how much the index of a result is divided, with a remainder that terms depend on: in how many phases a kernel may walk it. 1: in none, or too
// many.
int64_t phases_along(const Arena& a, Id body, Id axis);

Program phases_made_whole(const Program& p, const DimValues& sizes, const PlanRequest& request);

}  // namespace xhat
