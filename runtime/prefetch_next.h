// What the next step of a loop reads first, on its way while this one computes. A step that copies a plane with a border around it and
// then sums up windows of it waits for memory in its first half and lets it rest in the second: caches fetch ahead what is read at a
// regular pace, and there is none. So the last loop of a step asks, at each of its turns, for a few of the lines that the next step will
// read in vectors:
//
//   for p: copy = x[p, ..];  for i: y = f(copy, i)    =>    … for i: prefetch lines i, i + 1, … of x[p + 1, ..]; y = f(copy, i)
//
// Not where the last loop reads the same input itself: it then sets the pace (rows of a norm: nothing was gained).
#pragma once
#include <set>
#include <string>

#include "Halide.h"

namespace xhat::runtime {

// Adds the pass to the pipeline, after those that change its loops. inputs: names of buffers.
void prefetch_next(Halide::Pipeline& pipeline, const std::set<std::string>& inputs);

}  // namespace xhat::runtime
