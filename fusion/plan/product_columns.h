// The columns of products between kernels' results are chosen by price: a product whose result stays within the direction may lie either way.
//
//   z[n,k] = sum(d: x[n,d]*w[d,k])   y[n,k] = f(z[n,k], max(k: z[n,k]))     =>     z[k,n] = sum(d: x[n,d]*w[d,k])   …
//
// With n as columns a tile has some n and all k, so that the maximum is in the tile. Turned where the kernels move clearly fewer bytes then, and
// what reductions read across memory counts as moved; not where a sum reads it beside what lies as it does, s[n] = sum(k: z[n,k]*x[n,k]), and
// would have to stride.
//
// Needs: a program of one direction in normal form, sizes for all dims. Keeps: every value, but for the order of sums. Does nothing under a
// policy other than full.
#pragma once
#include "fusion/plan/plan.h"

namespace xhat {

Program columns_by_price(const Program& p, const DimValues& sizes, const PlanRequest& request);

}  // namespace xhat
