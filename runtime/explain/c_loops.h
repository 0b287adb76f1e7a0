// A program as plain C: what a programmer would write first. One loop nest per definition, in the order in which memory lies, with the true
// bounds; OpenMP's `parallel for` over the outer axis where it is one of the result. Compiled by
//
//   g++ -O3 -march=native -fopenmp -x c++ FILE
//
// it is the floor that kernels are held against (bench/cliffs), and a second opinion on what they compute.
#pragma once
#include <string>
#include <vector>

#include "expr/index/dims.h"
#include "runtime/call/compile.h"

namespace xhat {

// What functions need: types, and operations whose meaning is not that of C (division, casts, NaN in extremes).
std::string c_prelude();
// Functions, with the prelude before them, and with those functions of the language that C has not, if one is called.
std::string c_with_prelude(const std::string& code);

// One direction (infer_program, forward_program, backward_program) as one function, `void name(const float* x, float* y)`: the inputs, then
// the outputs, in their order. What is not delivered stands in static arrays, so a function must not run twice at a time. Indices that are
// data are not checked. sizes: all dims; they are constants of the code.
std::string c_function(const Program& direction, const std::string& name, const DimValues& sizes);

// `extern "C" void NAME_call(void* const* tensors)`, for who calls it with a list: inputs, then outputs.
std::string c_entry(const Program& direction, const std::string& name);

// xhat explain --c: both directions of an op as derived with these options, the forward with what it keeps.
std::string explain_c(const Program& op, const CompileOptions& options, const DimValues& given);

}  // namespace xhat
