// Arithmetic progressions in Halide's lowered code that it, or LLVM, makes wrong or slow code of (Halide 21).
//
// Two floats: its simplifier turns any vector of two scalars {a, b} into ramp(a, b - a, 2), floats too (Simplify_Shuffle.cpp,
// "collapse a concat of scalars into a ramp"). Lane 0 is then a + 0 * (b - a): NaN where b is infinite or NaN; lane 1 is
// a + (b - a): 0 for a = 1e10 and b = 1.
//
// Places that descend from a constant: LLVM is told which elements of a buffer a load or store may touch (CodeGen_LLVM.cpp,
// add_tbaa_metadata), and of these that it is the first one alone. What was stored in the others is then left out, or moved behind.
//
// Results that are read again: Halide takes loads of a pipeline's own output for aligned as their place in it is, whatever the caller's buffer
// is (CodeGen_LLVM::codegen_vector_load knows the buffers of inputs only).
//
// Vectors of accumulators beside each other whose lanes are written a known stride apart: LLVM joins the lanes of fma to vectors from stores of
// neighbours on (its SLP pass). It finds the neighbours of one lane in all of these vectors, takes the accumulators apart to join them so, and
// the lanes stay scalars: a strided convolution with its maximum took 60 us instead of 6.
//
//   t[ramp(k, 270, 8)] = acc[ramp(0, 1, 8)]; t[ramp(k + 1, 270, 8)] = acc[ramp(8, 1, 8)]
//
// Places a few elements apart under the mask of a last vector (columns of x[n,3] at the end of a tile): Halide makes a branch and a load of each
// lane. A load of all elements from the first to the last that is wanted, under a mask too, and a shuffle of it are a tenth of the code.
//
//   x[ramp(k, 3, 16)] if ramp(p, 1, 16) <= n     slice_vectors(x[ramp(k, 1, 48)] if ramp(0, 1, 48) <= (n - p) * 3, 0, 3, 16)
#pragma once
#include "Halide.h"

namespace xhat::runtime {

// Adds the pass to the pipeline: such pairs are {a, b} again, and such places ascend, their vectors turned over; such strides are
// no constants, such loads begin anywhere, and such lanes come from one load where the target has loads under masks.
void mend_ramps(Halide::Pipeline& pipeline, const Halide::Target& target);
// The same, of lowered code at hand.
Halide::Internal::Stmt with_mended_ramps(const Halide::Internal::Stmt& lowered, const Halide::Target& target);

}  // namespace xhat::runtime
