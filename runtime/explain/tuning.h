// The file that `xhat tune` writes: for each kernel the tiles and vectors that were faster than the planner's rules, on one machine.
//
//   xhat::CompileOptions options;
//   options.choices = xhat::choices_of(xhat::read_tuning("tuned.json"));
//
// A choice applies only to the kernel that it was measured for (fusion/plan/kernel_key.h: its computation and sizes). It does not change accuracy,
// but where a kernel sums across tiles it changes the order of addition.
#pragma once
#include <string>
#include <vector>

#include "fusion/plan/plan.h"
#include "runtime/call/machine.h"

namespace xhat {

struct TunedKernel {
  std::string key, name, direction;
  KernelChoice choice;  // all 0: no choice was faster than the rules
  double default_ms = 0, tuned_ms = 0;
};

struct TunedOp {
  std::string op;
  DimValues dims;
  int threads = 0;
  std::vector<TunedKernel> kernels;
};

struct Tuning {
  Machine machine;
  std::vector<TunedOp> ops;
};

// Throws Error naming the file and the place in it, if it cannot be read, is no such table, or was made by another version of xhat or on
// another machine.
Tuning read_tuning(const std::string& path);
// Writes to a new file, and replaces the old one only when that is complete. Throws Error.
void write_tuning(const std::string& path, const Tuning& tuning);
// Adds the choices found for an op. A new choice for a kernel replaces the old one.
void merge(Tuning& tuning, const TunedOp& found);

// threads: the number that the op will run on (0: one per core). Choices for other numbers are left out.
KernelChoices choices_of(const Tuning& tuning, int threads = 0);

}  // namespace xhat
