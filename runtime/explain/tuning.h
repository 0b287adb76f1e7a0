// What `xhat tune` found, in a file: for each kernel the tiles and vectors that were faster than the rules, on one machine.
//
//   xhat::CompileOptions options;
//   options.fusion.choices = xhat::choices_of(xhat::read_tuning("tuned.json"));
//
// A choice is taken for the kernel that it was measured for (fusion/plan/kernel_key.h: what it computes, at these sizes) and
// ignored otherwise. Values are as accurate as without; where a kernel sums across tiles they are added in another order.
#pragma once
#include <string>
#include <vector>

#include "fusion/plan/plan.h"
#include "runtime/call/machine.h"

namespace xhat {

struct TunedKernel {
  std::string key, name, direction;
  KernelChoice choice;  // all 0: nothing was faster
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

// Throws Error naming the file and the place in it: it cannot be read, is no such table, or was made by another version of
// xhat or on another machine.
Tuning read_tuning(const std::string& path);
// Whole or not at all: the file is replaced when all is written. Throws Error.
void write_tuning(const std::string& path, const Tuning& tuning);
// Adds what was found for an op; of kernels that were there, the new choice replaces the old one.
void merge(Tuning& tuning, const TunedOp& found);

// threads: that the op will run on (0: one per core); other choices are left out.
KernelChoices choices_of(const Tuning& tuning, int threads = 0);

}  // namespace xhat
