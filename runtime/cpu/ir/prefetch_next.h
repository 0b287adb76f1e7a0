// Rows, and windows that move over rows: what the next step of a loop reads beside what this one read, on its way while this one
// computes. A step that goes over its row more than once (a softmax: its largest, its exponentials, their sum, the quotients), or sums up
// columns of three rows and then these along the row, waits for memory the first time and lets it rest afterwards. So one of the loops
// behind the first, the one that computes most, asks at each of its turns for a few of the lines that are new in the next step:
//
//   for i: columns = x[i-1, ..] + x[i, ..] + x[i+1, ..];  for j: y = f(columns, j)
//      =>   for i: columns = ..;  for j: prefetch lines j of x[i+2, ..]; y = f(columns, j)
//
// Not rows too long for the first cache, which a processor fetches well ahead by itself; nor, on Zen 4, rows of which no window sees two
// at once (softmax, two threads: forward 0.71 ms, asked for 0.74, backward 0.90 and 0.99; on an Ice Lake 1.46 and 1.06, 1.5 and 1.2).
#pragma once
#include <set>
#include <string>

#include "Halide.h"

namespace xhat::runtime {

// Adds the pass to the pipeline, after those that change its loops. inputs: names of buffers. tuned_for: Target::processor_tune.
void prefetch_next(Halide::Pipeline& pipeline, const std::set<std::string>& inputs, Halide::Target::Processor tuned_for);

}  // namespace xhat::runtime
