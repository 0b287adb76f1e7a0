// Windows that move over rows: what the next step of a loop reads beside what this one read, on its way while this one computes. A step
// that sums up the columns of three rows and then sums these along the row waits for memory in its first half and lets it rest in the
// second. So the last loop of a step asks, at each of its turns, for a few of the lines that are new in the next step:
//
//   for i: columns = x[i-1, ..] + x[i, ..] + x[i+1, ..];  for j: y = f(columns, j)
//      =>   for i: columns = ..;  for j: prefetch lines j of x[i+2, ..]; y = f(columns, j)
//
// Not where the last loop reads the same input itself, nor where each step reads rows of its own: caches fetch these ahead by themselves
// (a softmax was 4% slower).
#pragma once
#include <set>
#include <string>

#include "Halide.h"

namespace xhat::runtime {

// Adds the pass to the pipeline, after those that change its loops. inputs: names of buffers.
void prefetch_next(Halide::Pipeline& pipeline, const std::set<std::string>& inputs);

}  // namespace xhat::runtime
