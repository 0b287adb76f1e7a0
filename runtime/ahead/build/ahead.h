// Compiles an op ahead of time: a static library, a C header and a C++ header. Who links the library needs neither Halide nor xhat.
//
// A library holds the code of the tiles for each processor level; a table of plans, which says for which sizes which tiles are
// walked in which order (runtime/ahead/support/table.h); and the walk itself, the one that the engine runs too (runtime/host/tile_walk.h).
//
// Sizes. Kernels have most extents built in (runtime/kernel/kernel_sizes.cpp); a batch size stays open. So one dim may be left open, and
// the others are given, each as one or more values. For the open one the planner is asked at some hundred sizes, and ranges of
// sizes with the same kernels become one row of the table; numbers in it are linear in the dim, and tiles follow the planner's
// rule (fusion/plan/tile_rule.h). So a library computes the bits that the engine does, but for sizes that the engine would compile for
// one by one: there the kernels are cut such that the size is not in the code, and sums are added up in another order.
//
// What forward keeps is chosen once for all of these sizes: as for the largest given of each dim, and the nominal size (StashOptions, 64)
// of the open one.
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
  std::map<std::string, std::vector<int64_t>> sizes = {};  // of dims: what to compile for
  std::vector<Target> devices = {};                        // cuda, opencl: beside the CPU
  std::map<std::string, std::vector<int64_t>> device_sizes = {};  // of dims: where they differ there
  std::vector<CpuLevel> levels = {CpuLevel::sse41, CpuLevel::avx2, CpuLevel::avx512};
  std::string name = {};      // of files and functions; empty: the op's
  std::string support = {};   // libxhat_ahead.a, which becomes part of the library
  std::string compiler = "c++", archiver = "ar";
  int jobs = 0;               // compilers at a time; 0: one per core
  std::function<void(const std::string& what, bool often)> progress = {};
};

struct AheadLibrary {
  std::string name;
  std::vector<std::string> files;  // written: the library, the C header, the C++ header
  std::string open;                // the dim that stays open; empty: none
  size_t kernels = 0;              // compiled, for each level
  size_t plans = 0;                // ranges of sizes, of all sides together
  size_t device_kernels = 0;       // of all devices
  int64_t bytes = 0;               // of the library
};

// Writes into the folder, which is made if need be. Throws Error for an op or sizes that cannot be compiled so, naming the dims
// that must be given, and for a compiler that fails.
AheadLibrary build_ahead(const Program& op, const AheadOptions& options, const std::string& folder);

}  // namespace xhat
