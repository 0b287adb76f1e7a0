// What was measured on a machine and decides plans, in one place. The defaults are the reference machine: an AVX-512 server, of which one
// thread sees 2 MB of L2 (expr/core/ops.def has its prices of scalar operations). docs/performance.md says how such figures are taken.
#pragma once
#include <cstdint>
#include <map>
#include <optional>

#include "expr/core/expr.h"

namespace xhat {

// Prices that decide what programs and the code of kernels are. They are the reference machine's, whatever is known of another, so that
// programs and code are the same everywhere. In picoseconds, of one thread.
constexpr int64_t kReadByte_ps = 60;    // from memory: 0.24 ns were measured per element of 4 bytes
constexpr int64_t kWriteByte_ps = 120;  // a write also fetches the line
// Of reading, and of storing and reading again, per element of f32.
constexpr int64_t kRead_ps = 4 * kReadByte_ps, kKept_ps = 4 * (kReadByte_ps + kWriteByte_ps);
// What costs no more is computed where it is used rather than read: about one exp.
constexpr int64_t kCheap_ps = 150;
// What costs less is not stored for the backward: about one addition and one multiplication, less than the read would cost.
constexpr int64_t kWorthStoring_ps = 100;
// Common subexpressions of members of a kernel are stored in the tile if they take at least this long per element, about one exp: a store
// and a load from L1 or L2 take about 50 ps each.
constexpr int64_t kSharedInTile_ps = 140;
// What is in the tile anyway is read again if computing it takes at least this long.
constexpr int64_t kReadAgain_ps = 20;

// Bytes from which kernels use non-temporal stores on the reference machine: a last-level cache of 32 MiB.
constexpr int64_t kStreamBytes = 32 << 20;

struct MachineModel {
  // Prices of the stash planner, in picoseconds: one thread, tensors in memory. xhat calibrate measures them, --prices reads them.
  int64_t read_ps_per_byte = kReadByte_ps;
  int64_t write_ps_per_byte = kWriteByte_ps;
  int64_t pass_ps = 1'000'000;       // starting one more sweep before its readers can go on
  int64_t memory_ps_per_byte = 0;    // of what is kept beyond what the caller retains: no time, so it is for people to say
  std::map<Op, int64_t> op_ps = {};  // per element, where they are others than ops.def's

  // Prices of the kernel planner, in bytes that memory moves meanwhile.
  // The start of a run of bytes that lie side by side. Columns of a matrix summed up in blocks, one thread, GB/s of what is used: runs of
  // 16 bytes 0.3, of 64 1.1, of 256 2.0, of 1024 3.4; by this constant and 4 GB/s 0.3, 1.0, 2.2, 3.3.
  int64_t run_start_bytes = 200;
  // Multiplying and adding two f32 in a product's block: two threads move 28 GB/s, and do 140 Gflop/s.
  double multiply_bytes = 0.4;

  // Caches, in bytes. What a kernel reads again after more than L2 counts as moved again.
  int64_t l2_bytes = 2 << 20;
  // Largest footprint of a tile that is read more than once, which must stay in L2: a channel of BatchNorm's backward (x, dy, dx: 1.2 MB)
  // is still worth one tile.
  int64_t cache_bytes = 3 << 19;
  // A kernel with at least stream_bytes of footprint and at most stream_ps_per_byte of arithmetic uses non-temporal stores
  // (runtime/cpu/ir/stream_stores.h). Two threads, ordinary and non-temporal: tanh's backward (8 ps a byte) 7.2 and 5.3 ms, mish's (44)
  // 5.1 and 4.3, its forward (143) 6.6 and 7.3. No value: kStreamBytes in a plan that nobody runs; compile() fills in this machine's.
  std::optional<int64_t> stream_bytes = {};
  int64_t stream_ps_per_byte = 50;
  // Kernels that write rows which do not begin with lines of the cache need so many times stream_bytes. Cross entropy's backward, rows of
  // 4000 bytes, two threads and 32 MiB of cache, ordinary and non-temporal: 33 MB 0.52 and 0.82 ms, 131 MB 3.56 and 3.36.
  int64_t off_lines_factor = 4;
  bool fills_the_cache(int64_t bytes) const { return bytes >= stream_bytes.value_or(kStreamBytes); }

  // Tiles. Footprint of one, in bytes: a tile costs about a microsecond beyond its work (softmax 4096x1024, two threads: 2.1 ms with
  // 32 KB, 1.5 with 128, 1.45 with 256 and with 512).
  int64_t tile_bytes = 256 << 10;
  // Kernels with partial results have tiles this many times as large (LayerNorm's backward: 3.5 ms with 128 KB, 2.5 with 512 KB).
  int64_t partial_tile_factor = 2;
  // So have kernels with products: operands are packed once per tile (attention, S = T = 256, backward: 6.7 ms with 1, 4.8 with 2).
  int64_t product_tile_factor = 2;
  // So have kernels that fill the last-level cache and have neither: memory is faster in long runs (huber, 8M elements, two threads,
  // forward: 1.73 ms with 256 KB, 1.49 with 1 MB, 1.52 with 4 MB).
  int64_t long_tile_factor = 4;
  // Below this footprint, in bytes, a kernel is one tile: waking a second thread costs more than it saves.
  int64_t serial_bytes = 64 << 10;
  // So is none that has more than this much arithmetic, in picoseconds of one thread: sums over all pairs of 1024 points read 12 KB and take
  // milliseconds.
  double serial_ps = 20e6;
  // Fewest tiles of a kernel, so that threads share its work evenly.
  int64_t least_tiles = 16;
  // Tiles of a scatter. Each goes over all updates, so there are no more than the threads need (embedding_sum's backward on two threads:
  // 0.186 ms in 16 tiles, 0.138 in 4). No value: least_tiles; compile() fills in this machine's. Results do not depend on it: a kernel
  // with partial results always has least_tiles.
  std::optional<int64_t> scatter_tiles = {};
  // May the planner say in which order tiles run, and which thread takes several? Blocks of a GPU's threads run in any order: no grid axis
  // is sequential there, none is tied to another, and no kernels share a sweep.
  bool tiles_in_order = true;
};

}  // namespace xhat
