// Products in a loop that do not wait for the iteration before are computed for all iterations at once, before the loop.
//
//   for t in 0..T carrying h {                      g = all(x, w)                      g[t,i] = sum(j: w[i,j] * x[t,j])
//     h_1 = cell(x[t], w, h)                 =>     for t in 0..T carrying h {
//   }                                                 h_1 = cell(g[t], h)
//   where cell has sum(j: w[i,j] * x[j])            }
//
// One product of T rows reads w once, and so does its gradient.
#pragma once
#include "expr/core/steps.h"

namespace xhat::imperative {

// p has steps.
Program hoist_products(Program p);

}  // namespace xhat::imperative
