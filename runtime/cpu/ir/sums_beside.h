// Sums of columns beside a map of the same rows, in one loop. Halide's loops belong to one Func each, or to several with the same
// loops (compute_with); these have rows to sum over here and rows to write there:
//
//   for i: for j: s[j] += f(i,j)                  for i: for j: m[i,j] = g(i,j); s[j] += f(i,j)
//   for i: for j: m[i,j] = g(i,j)           =>
//
// so that a row is read from memory once, and what f and g share is computed once.
#pragma once
#include <string>

#include "Halide.h"

namespace xhat::runtime {

// Adds the pass to the pipeline, before those that look at its loops. map_loop, sum_loop: the names of the loops over the rows, which
// are as many. Neither may read what the other writes. Code of another shape than expected stays as it is.
void sums_beside(Halide::Pipeline& pipeline, const std::string& map_loop, const std::string& sum_loop);

}  // namespace xhat::runtime
