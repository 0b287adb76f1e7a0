// What machine code depends on beside the kernel that it is of.
#pragma once
#include <string>

namespace xhat::runtime {

// One line for the sources of xhat, the Halide library and the processor: equal where a kernel would be compiled to the same
// code. (runtime/tuning.h asks another question: on which machine times were measured.) Asks Halide nothing.
std::string code_fingerprint();

// Path of a library that this process has loaded, by the beginning of its file's name; empty if there is none.
std::string loaded_library(const std::string& beginning);

}  // namespace xhat::runtime
