// Compiles an op ahead of time to a static library, a C header and a C++ header. A program that links it needs neither Halide nor xhat.
//
// A library contains the code of the tiles for each processor level, a table of plans for ranges of sizes (runtime/ahead/support/table.h), and the
// outer loop that the engine uses too (runtime/host/tile_walk.h).
//
// Sizes. Most extents are constants of a kernel's code (runtime/kernel/kernel_sizes.cpp); a batch size can be dynamic. So one dim may stay open,
// and each other dim is given one or more values. For the open dim, plans are made at some hundred sizes. A range of sizes with the
// same kernels becomes one row of the table, whose numbers are linear in the dim; tiles follow the planner's rule (fusion/plan/tile_rule.h). A
// library computes the same bits as the engine, except where the engine would compile for each size: there the library's kernels are cut
// so that the size is not in the code, and sums are added in another order.
//
// The stash is chosen once for all sizes: with the largest given value of each dim, and the nominal size (StashOptions, 64) of the open one.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/call/compile.h"
#include "runtime/host/cpu_level.h"

namespace xhat {

struct AheadOptions {
  CompileOptions compile = {};
  std::map<std::string, std::vector<int64_t>> sizes = {};         // per dim: the values to compile for
  std::vector<std::string> strided = {};                          // arrays that calls may give with strides: inputs, outputs, gradients
  std::vector<Target> devices = {};                               // devices in addition to the CPU: cuda, opencl
  std::map<std::string, std::vector<int64_t>> device_sizes = {};  // per dim: values for devices, if they differ
  std::vector<CpuLevel> levels = {CpuLevel::sse41, CpuLevel::avx2, CpuLevel::avx512};
  std::string name = {};     // name of files and functions; empty: the op's
  std::string support = {};  // libxhat_ahead.a, which becomes part of the library
  std::string compiler = "c++", archiver = "ar";
  int jobs = 0;  // compilers that run at the same time; 0: one per core
  std::function<void(const std::string& what, bool often)> progress = {};
};

struct AheadLibrary {
  std::string name;
  std::vector<std::string> files;  // the files written: the library, the C header, the C++ header
  std::string open;                // the dims that stay open; empty: none
  size_t kernels = 0;              // kernels compiled per processor level
  size_t plans = 0;                // ranges of sizes of all sides
  size_t device_kernels = 0;       // kernels of all devices
  int64_t bytes = 0;               // size of the library
};

// Writes into the folder, and creates it if necessary. Throws Error for an op or sizes that cannot be compiled like this, naming the dims that must
// be given, and for a compiler that fails.
AheadLibrary build_ahead(const Program& op, const AheadOptions& options, const std::string& folder);

}  // namespace xhat
