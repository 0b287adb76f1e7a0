// What the code of a kernel takes for granted. Halide writes an assertion wherever a schedule promises something (that a block has 8
// elements, that an input is read inside), and its passes simplify by all of them as by facts. A promise that is broken thus makes code
// that is wrong in any way: loops that leave elements out, stores beyond the end. So kernels are lowered with the assertions; each is
// evaluated for calls as they will be, and taken out if it holds. Else the kernel is refused, to be compiled in the plain way.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "Halide.h"

namespace xhat::runtime {

// The arguments of one call that a kernel may get.
struct SampleCall {
  std::map<std::string, int64_t> scalars;                // by name
  std::map<std::string, std::vector<int64_t>> extents;   // by buffer, innermost dimension first
};

// Adds a pass that throws Halide::CompileError if an assertion fails in one of the calls, or, with unknown_is_broken, cannot be evaluated:
// code in the plain way has no better one to give way to. The pipeline is then lowered by lowered_with_assertions().
void refuse_broken_assumptions(Halide::Pipeline& pipeline, std::vector<SampleCall> calls, bool unknown_is_broken);

// Adds the functions of a module to another.
void add_to(Halide::Module& module, const Halide::Module& added);

// Code for `target`, which has no assertions, but is lowered with them.
Halide::Module lowered_with_assertions(Halide::Pipeline& pipeline, const std::vector<Halide::Argument>& arguments, const std::string& name,
                                       const Halide::Target& target);

}  // namespace xhat::runtime
