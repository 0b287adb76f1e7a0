// What does not wait for the iteration before is computed before the loop: products of all iterations at once, and once whatever is dear
// and the same in all of them.
//
//   for t in 0..T carrying h {                      g, v_once = cell_before(x, w, u)   g[t,i] = sum(j: w[i,j] * x[t,j])
//     h_1 = cell(x[t], w, u, h)              =>     for t in 0..T carrying h {         v_once[i,j] = sigmoid(u[i,j])
//   }                                                 h_1 = cell(g[t], v_once, h)
//   where cell has sum(j: w[i,j] * x[j])            }
//   and sum(j: sigmoid(u[i,j]) * h[j])
//
// One product of T rows reads w once, and so does its gradient. What is dear is what costs more than to read it (kCheap_ps), and what is
// computed before is no larger than a tensor that the program has anyway: no table of all pairs of two rows.
#pragma once
#include "expr/core/steps.h"

namespace xhat::imperative {

// p has steps.
Program hoist(Program p);

}  // namespace xhat::imperative
