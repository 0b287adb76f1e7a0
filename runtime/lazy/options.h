// What holds for all lazy arrays of the process. Set it before the first array, or between two calls of realize().
#pragma once
#include <cstdint>

#include "runtime/call/compile.h"

namespace xhat::lazy {

struct Options {
  // Floats may be folded as if they were real numbers: (x + 3) + 3 = x + 6, x * 0 = 0. Off: results are those of the operations as written.
  bool fast_math = false;
  CompileOptions compile = {};     // target, fusion, stash, threads; what it says of gradients is set by the engine
  size_t nodes_per_program = 256;  // a larger graph is computed by several programs, one after the other
};
Options& options();

// What was done since the process began.
struct Counts {
  int64_t realizes = 0;     // programs that ran
  int64_t kernels = 0;      // kernels that these ran
  int64_t copies = 0;       // arrays copied by a plain loop: results that could not be written in place, and values kept for others
  int64_t compiles = 0;     // programs derived and planned
  int64_t plans = 0;        // graphs looked at for the first time: other sizes, mostly
  int64_t bytes = 0;        // memory of values, now
  int64_t nodes = 0;        // nodes of graphs, now
  int64_t nanoseconds = 0;  // spent in calls of compiled ops; what realize() takes beyond is its own
};
Counts counts();

}  // namespace xhat::lazy
