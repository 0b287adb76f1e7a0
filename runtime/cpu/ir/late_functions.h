// Functions of vector math that are names until all else is vectors (vmath::is_late), and branches for what hardly any element of a vector takes:
// Halide has a branch for each of its elements.
//
//   sin(x)   =>   let s = (sin of small x) in if_then_else(any(x > 1e8), select(x > 1e8, sin.rare(x), s), s)
//
// In a module sin.rare is a function beside the code, which gets the address of a vector and puts its values there; so is sin, if there are more than
// kMostInLine: LLVM's time is more than proportional to them. The operations are the same ones, and so are all values.
#pragma once
#include <string>

#include "Halide.h"

namespace xhat::runtime {

// A module for `target` with these functions, whose names begin with `name`.
Halide::Module with_late_functions(const Halide::Module& lowered, const std::string& name, const Halide::Target& target);
// Adds a pass that leaves all in line, for pipelines that no module is made of.
void write_out_late_functions(Halide::Pipeline& pipeline, const Halide::Target& target);

}  // namespace xhat::runtime
