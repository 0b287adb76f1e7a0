// Running products, and sums whose terms are weighted by products between a term and its result, in order: one operation per result.
//
//   y[t] = prod(k in 0..t+1: f[k])                                  =>   y[t] = y[t-1 else 1] * f[t]
//   y[t] = sum(k in 0..t+1: b[k] * prod(j in k+1..t+1: a[j]))       =>   y[t] = a[t] * y[t-1 else 0] + b[t]
//   g[k] = sum(t in k..T: d[t] * prod(j in k+1..t+1: a[j]))         =>   g[k] = a[k+1] * g[k+1 else 0] + d[k]
//
// The second is a linear recurrence as people write it. Gradients of both consist of all three, once running_parts.h has taken their sums apart:
// product_of_others (ad/common/body.h) is the product of what stands before an element and of what stands behind it. Nothing is divided, so
// zeros are like other numbers. A product from the first element on has the bits that it has as written; one from an element to the end is multiplied up from the
// end. A result of n terms is off by at most 2*n roundings of these terms' sizes, as it is written down.
//
// Needs: a program of one direction in normal form, sizes for all dims. Keeps: tensors and their numbers, values up to the order of additions
// and of factors. Does nothing for 16-bit floats and integers.
#pragma once
#include "fusion/plan/plan.h"

namespace xhat {

Program ranges_as_recurrences(const Program& p, const DimValues& sizes, const PlanRequest& request);

}  // namespace xhat
