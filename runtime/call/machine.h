// The machine that the program runs on, as far as plans and times depend on it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "expr/core/machine_model.h"

namespace xhat {

struct Machine {
  std::string cpu;      // as it calls itself
  std::string vectors;  // the widest extension that kernels use: avx512, avx2, ...
  int threads = 0;      // that it runs at a time
  std::vector<int64_t> cache_bytes;  // that a core sees, L1 first
  bool operator==(const Machine&) const = default;
};
Machine this_machine();

// A kernel that touches as much writes its results past the cache, if memory is what it waits for
// (MachineModel::stream_bytes): what the last cache holds. Caches as above.
int64_t stream_bytes_of(const std::vector<int64_t>& cache_bytes, int threads);
int64_t stream_bytes_here();

// What the model leaves open about the CPU is that of this machine.
MachineModel for_this_machine(MachineModel model);
// Tiles as blocks of a GPU's threads want them.
MachineModel for_gpu(MachineModel model);

}  // namespace xhat
