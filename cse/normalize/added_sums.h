// Sums that are only added up are one sum.
//
//   y = relu(sum(d: a[d]^2) - sum(d: b[d]^2) + 1)       =>     y = relu(sum(d: a[d]^2 - b[d]^2) + 1)
//   m = sum(d: a[d])/D - 2*sum(d: b[d])                 =>     m = sum(d: a[d] - 2*D*b[d])/D
//
// Written in place or as definitions that nobody else reads, over the same axes, times and divided by numbers and dims. Not joined are matrix
// products, which have kernels of their own (a sum of which no read has all axes). A divisor stays outside: over nothing a mean is NaN.
// Exact but for the order of addition, which sums leave open, and for the rounding of numbers that go in; f16 and bf16, which are rounded
// where a sum ends, stay.
// Needs: calls expanded. Keeps: outputs.
#pragma once
#include "expr/core/program.h"

namespace xhat {

Program without_added_sums(const Program& p);

}  // namespace xhat
