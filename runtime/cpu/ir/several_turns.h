// Loops whose turns are written out, some at a time: memory and arithmetic overlap, and counting costs less.
//
// Halide writes the last turns of such a loop out, too, each with a vector of its own under a mask: 12 copies of what 4 vectors compute, most of
// the time that LLVM takes. Here those that are left over are a loop of single ones, and one vector is masked:
//
//   for i < n/8: f(8 i)          =>    for i < n/32: f(32 i); f(32 i + 8); f(32 i + 16); f(32 i + 24)
//   if n % 8: f under a mask           for i < n/8 % 4: f(..)
//                                      if n % 8: f under a mask
#pragma once
#include <string>

#include "Halide.h"

namespace xhat::runtime {

// What the name of a variable ends with whose loop is to be so.
std::string suffix_of_turns(int at_a_time);
// Adds the pass to the pipeline, before those that look at what a turn reads and writes.
void write_out_turns(Halide::Pipeline& pipeline);

}  // namespace xhat::runtime
