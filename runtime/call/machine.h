// The machine that the program runs on, as far as plans and times depend on it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

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
// (FusionOptions::stream_bytes): what the last cache holds. Caches as above.
int64_t stream_bytes_of(const std::vector<int64_t>& cache_bytes, int threads);
int64_t stream_bytes_here();

int64_t scatter_tiles_here();  // FusionOptions::scatter_tiles: two for each thread that it runs at a time

// What the options leave open about the CPU is that of this machine.
struct FusionOptions;
FusionOptions for_this_machine(FusionOptions options);

}  // namespace xhat
