// What hardly any element of a vector takes, in a branch for the vector: Halide makes a branch for each of its elements.
//
//   if_then_else(x > 1e8, sin(x), y)   =>   let s = y in if_then_else(any(x > 1e8), select(x > 1e8, sin(x), s), s)
#pragma once
#include "Halide.h"

namespace xhat::runtime {

// Adds the pass to the pipeline.
void branch_for_vectors(Halide::Pipeline& pipeline);
// The same, of lowered code at hand, in vectors already.
Halide::Internal::Stmt with_branches_for_vectors(const Halide::Internal::Stmt& lowered);

}  // namespace xhat::runtime
