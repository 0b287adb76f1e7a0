// The environment that machine code depends on, beside its kernel.
#pragma once
#include <string>

namespace xhat::runtime {

// One line that identifies the sources of xhat, the Halide library and the processor. If it is equal, a kernel compiles to the same code. Does not
// call Halide. (runtime/explain/tuning.h identifies the machine of a measurement instead.)
std::string code_fingerprint();

// Options for Halide's LLVM, unless the user sets some. Halide emits an fma of vectors lane by lane, and a pass of LLVM joins the lanes again.
// Before that, VectorCombine turns loaded vectors into scalars, and where vectors overlap (the nine sums of a depthwise convolution's weights)
// they came back as shuffles: that backward took 0.73 ms instead of 0.64.
constexpr const char* kLlvmVariable = "HL_LLVM_ARGS";
// And where LLVM prefers half vectors (AVX-512 of Intel), the lanes were joined in halves, at half of the speed, in blocks whose loaded vectors
// overlap: conv_transpose_1d_dilated of bench/compare/kernelbench, one thread, forward 2.7 ms instead of 1.05.
constexpr const char* kLlvmOptions = "-disable-vector-combine -slp-max-reg-size=512";

// Path of a library that this process has loaded and whose file name begins with `beginning`; empty if there is none.
std::string loaded_library(const std::string& beginning);

}  // namespace xhat::runtime
