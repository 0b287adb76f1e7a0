// Loops whose turns are written out, some at a time: memory and arithmetic overlap, and counting costs less.
//
// Halide's unroll() writes the last turns out too, each of them whole and under a mask: 12 copies of the code for 4 vectors, which LLVM takes long
// to compile. This pass makes the turns that are left over a loop, and only the last vector is masked:
//
//   for i < n/8: f(8 i)          =>    for i < n/32: f(32 i); f(32 i + 8); f(32 i + 16); f(32 i + 24)
//   if n % 8: f under a mask           for i < n/8 % 4: f(..)
//                                      if n % 8: f under a mask
#pragma once
#include <string>

#include "Halide.h"

namespace xhat::runtime {

// A loop variable whose name ends in this has its loop written out, so many turns at a time.
std::string suffix_of_turns(int at_a_time);
// Adds the pass to the pipeline, before those that look at what a turn reads and writes.
void write_out_turns(Halide::Pipeline& pipeline);

}  // namespace xhat::runtime
