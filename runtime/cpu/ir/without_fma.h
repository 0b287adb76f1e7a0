// Code for processors without fma.
#pragma once
#include "Halide.h"

namespace xhat::runtime {

// What a processor without fma runs instead, in lowered code.
Halide::Internal::Stmt without_fma(const Halide::Internal::Stmt& s);
// The same as a pass of the pipeline.
void avoid_fma(Halide::Pipeline& pipeline);

}  // namespace xhat::runtime
