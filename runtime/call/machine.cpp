#include "runtime/call/machine.h"

#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include "runtime/cpu/lower.h"
#include "runtime/host/thread_pool.h"

namespace xhat {
namespace {

// What one core can hope for of a last cache. A guest sees all of one that it shares with many cores that it does not see
// (480 MiB on a Xeon with two of them, where 51 MB were written faster past the cache).
constexpr int64_t kMaxPerCore = 12 << 20;

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

std::string vector_extension() {
  using Feature = Halide::Target::Feature;
  const std::pair<Feature, const char*> known[] = {{Halide::Target::AVX512_Cannonlake, "avx512"},
                                                   {Halide::Target::AVX512_Skylake, "avx512"},
                                                   {Halide::Target::AVX512, "avx512"},
                                                   {Halide::Target::AVX2, "avx2"},
                                                   {Halide::Target::AVX, "avx"},
                                                   {Halide::Target::SSE41, "sse4.1"}};
  Halide::Target target = runtime::cpu_target();
  for (auto [feature, name] : known)
    if (target.has_feature(feature)) return name;
  return target.arch == Halide::Target::ARM ? "neon" : "none";
}

// "2048K"
int64_t bytes_of(const std::string& text) {
  int64_t n = std::atoll(text.c_str());
  return text.ends_with("K") ? n << 10 : text.ends_with("M") ? n << 20 : n;
}

std::vector<int64_t> caches() {
  std::vector<int64_t> found;
  for (int i = 0;; ++i) {
    std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", i), type = first_line(folder + "type");
    if (type.empty()) return found;
    if (type != "Instruction") found.push_back(bytes_of(first_line(folder + "size")));
  }
}

}  // namespace

Machine this_machine() { return {processor(), vector_extension(), runtime::threads_or_all(), caches()}; }

// Two cores that share 32 MiB with others, plain and past the cache: group_norm's forward, 8 MB, 0.10 and 0.20 ms; swiglu's,
// 25 MB, 0.32 and 0.37; layer_norm's, 34 MB, 0.85 and 0.74, rms_norm's 0.84 and 0.56; normalize_bgr, 39 MB, 0.75 and 0.57;
// softmax's backward, 50 MB, 1.09 and 0.85. Two that share 48 MiB: swiglu's forward 0.70 and 0.48, its backward, 42 MB, 1.49 and 1.04.
int64_t stream_bytes_of(const std::vector<int64_t>& cache_bytes, int threads) {
  if (cache_bytes.empty()) return kStreamBytes;
  return std::min(cache_bytes.back(), kMaxPerCore * std::max(1, threads));
}

// With a full disk cache a first call takes some milliseconds: it asks for no more than it needs, and once.
int64_t stream_bytes_here() {
  static const int64_t here = stream_bytes_of(caches(), runtime::threads_or_all());
  return here;
}

MachineModel for_this_machine(MachineModel model) {
  if (!model.stream_bytes) model.stream_bytes = stream_bytes_here();
  if (!model.scatter_tiles) model.scatter_tiles = 2 * runtime::threads_or_all();
  return model;
}

MachineModel for_gpu(MachineModel model) {
  // A tile is a block of some hundred threads: what it touches comes by way of L1, temporaries lie in 40 KB of shared memory.
  model.tile_bytes = 16 << 10;
  model.partial_tile_factor = 4;
  model.product_tile_factor = 1;
  model.long_tile_factor = 1;
  // A launch costs about as much as one block takes for so much.
  model.serial_bytes = 16 << 10;
  model.least_tiles = 64;
  model.tiles_in_order = false;
  return model;
}

}  // namespace xhat
