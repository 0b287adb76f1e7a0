// What machine code depends on beside the kernel that it is of.
#pragma once
#include <string>

namespace xhat::runtime {

// One line for the sources of xhat, the Halide library and the processor: equal where a kernel would be compiled to the same
// code. (runtime/explain/tuning.h asks another question: on which machine times were measured.) Asks Halide nothing.
std::string code_fingerprint();

// What Halide's LLVM is told, unless its user tells it something. Halide gives it an fma of vectors lane by lane, and its own pass
// puts these together again; before that, VectorCombine makes scalars of vectors that are loaded and taken apart, and where such
// vectors overlap (the nine sums of a depthwise convolution's weights) they came back as shuffles: its backward took 0.73 ms, not 0.64.
constexpr const char* kLlvmVariable = "HL_LLVM_ARGS";
constexpr const char* kLlvmOptions = "-disable-vector-combine";

// Path of a library that this process has loaded, by the beginning of its file's name; empty if there is none.
std::string loaded_library(const std::string& beginning);

}  // namespace xhat::runtime
