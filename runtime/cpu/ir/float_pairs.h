// Two floats that Halide has put together as an arithmetic progression.
//
// Its simplifier turns any vector of two scalars {a, b} into ramp(a, b - a, 2), floats too (Halide 21, Simplify_Shuffle.cpp,
// "collapse a concat of scalars into a ramp"). Lane 0 is then a + 0 * (b - a): NaN where b is infinite or NaN; lane 1 is
// a + (b - a): 0 for a = 1e10 and b = 1.
#pragma once
#include "Halide.h"

namespace xhat::runtime {

// Adds the pass to the pipeline: such pairs are {a, b} again.
void keep_float_pairs(Halide::Pipeline& pipeline);

}  // namespace xhat::runtime
