// The kernel planner: which definitions of one direction share a kernel, and over which axes.
//
// Every kernel has the same shape. An outer loop runs over tiles in parallel; its axes are the grid axes, which all members share. Inside
// a tile the members run in order, each over all of its other axes. A member that reduces over a grid axis leaves one partial result
// per tile, and a small second step adds them up.
//
//     s[n] = sum(d: x[n,d]*w[d])                one kernel over tiles of n: s and y from the same tile of x,
//     y[n,d] = x[n,d]*s[n]                      g as one partial row per tile, then the second step
//     g[d] = sum(n: x[n,d]*y[n,d])
//
// Partial results of a matrix product would be too large. If there are other grid axes, the reduced one becomes sequential instead: one
// thread takes its tiles in order, and each adds to the result of those before:
//
//     p[b,i,j] = sum(d: q[b,i,d]*k[b,j,d])      one kernel over tiles of b and, in order, of i: a tile has some rows of p,
//     y[b,i,d] = sum(j: p[b,i,j]*v[b,j,d])      which are never written to memory
//     g[b,j,d] = sum(i: p[b,i,j]*u[b,i,d])
//
// The input is a program of one direction in normal form (cse/normalize/auto_inliner.h): the body of a definition is either free of
// reductions or one reduction at the root.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "expr/core/program.h"
#include "expr/index/dims.h"
#include "fusion/plan/relay_options.h"
#include "fusion/plan/tile_rule.h"

namespace xhat {

// off: every definition its own kernel; relay: the groups of the classic policy (fusion/relay/relay_kernels).
enum class FusePolicy : uint8_t { full, relay, off };

// Definitions, by target, that another policy put into one kernel.
struct FusionGroup {
  std::vector<TensorId> definitions;
  std::string reason;  // why it stands apart; may be empty
};

// What measuring found to be faster for a kernel than the rules (xhat tune); 0: by the rule.
struct KernelChoice {
  static constexpr int64_t kOneTile = int64_t{1} << 40;  // bytes
  int64_t tile_bytes = 0;   // as in FusionOptions, whatever the kernel leaves, and never one tile for being small
  int64_t least_tiles = 0;  // as in FusionOptions
  int vectors = 0;          // per step of a loop, and per row of a product's block
  bool operator==(const KernelChoice&) const = default;
};
using KernelChoices = std::map<std::string, KernelChoice>;  // by Kernel::key

// Default size from which kernels use non-temporal stores, when the machine is unknown: a last-level cache of 32 MiB.
constexpr int64_t kStreamBytes = 32 << 20;

struct FusionOptions {
  FusePolicy policy = FusePolicy::full;
  // Policy relay only: its limits, and the groups of this program. A definition that is in no group is a kernel of its own.
  fusion::RelayOptions relay = {};
  std::vector<FusionGroup> groups = {};
  std::vector<TensorId> alone = {};  // targets of definitions that a library computes: each is a kernel of its own
  // Largest footprint, in bytes, of a tile that is read more than once: it must stay in L2 (2 MB on the reference machine). A channel of
  // BatchNorm's backward (x, dy, dx: 1.2 MB) is still worth one tile.
  int64_t cache_bytes = 3 << 19;
  // L2 of the reference machine, in bytes: what a kernel reads again after more than this counts as moved again.
  int64_t reference_l2_bytes = 2 << 20;
  // Footprint of a tile, in bytes. A tile costs about a microsecond beyond its work: softmax 4096x1024 on two threads takes 2.1 ms with
  // 32 KB, 1.6 with 64, 1.5 with 128, 1.45 with 256 and with 512.
  int64_t tile_bytes = 256 << 10;
  // Kernels with partial results have tiles this many times as large (LayerNorm's backward: 3.5 ms with 128 KB, 2.5 with 512 KB).
  int64_t partial_tile_factor = 2;
  // So have kernels with products: operands are packed once per tile (attention, S = T = 256, backward: 6.7 ms with 1, 4.8 with 2).
  int64_t product_tile_factor = 2;
  // So have kernels that exceed the last-level cache and have neither: memory is faster in long runs (huber, 8M elements, two threads,
  // forward and backward: 1.73 and 2.44 ms with 256 KB, 1.49 and 2.18 with 1 MB, 1.52 and 2.16 with 4 MB).
  int64_t long_tile_factor = 4;
  // Below this a kernel is one tile: waking a second thread costs more than it saves.
  int64_t serial_bytes = 64 << 10;
  // A kernel with at least stream_bytes of footprint and at most stream_ps_per_byte of arithmetic uses non-temporal stores
  // (runtime/cpu/ir/stream_stores.h). Two threads, ordinary and non-temporal: BatchNorm's forward (19 ps a byte) 1.8 and 1.3 ms, tanh's
  // backward (8) 7.2 and 5.3, mish's (44) 5.1 and 4.3, its forward (143) 6.6 and 7.3. No value: kStreamBytes in a plan that nobody runs;
  // compile() fills in this machine's (runtime/call/machine.h).
  std::optional<int64_t> stream_bytes = {};
  int64_t stream_ps_per_byte = 50;
  bool fills_the_cache(int64_t bytes) const { return bytes >= stream_bytes.value_or(kStreamBytes); }
  // Programs of at most this many definitions are planned exactly (exact_plan.cpp). Planning 6 takes about a millisecond, 8 ten.
  size_t exact_definitions = 6;
  // Fewest tiles of a kernel, so that threads share its work evenly.
  int64_t least_tiles = 16;
  // Tiles of a scatter. Each goes over all updates, so there are no more than the threads need (embedding_sum's backward on two threads:
  // 0.186 ms in 16 tiles, 0.138 in 4). No value: least_tiles; compile() fills in this machine's. Results do not depend on it: a kernel
  // with partial results always has least_tiles.
  std::optional<int64_t> scatter_tiles = {};
  // Reductions over a batch have partial results even where the batch is small, so that code does not depend on its size: for libraries
  // that serve any size (runtime/ahead/build/ahead.h).
  bool cut_small = false;
  // Products may have sequential grid axes (Kernel::sequential).
  bool carry_sums = true;
  // Means and variances of tensors larger than the last-level cache are combined from those of chunks (fusion/plan/chunked_variance.h).
  bool variance_by_chunks = true;
  // Axes may be grouped (KernelAxis::of) in programs that read more than the last-level cache holds. In smaller ones reading twice is
  // cheaper than the coarse tiles that grouping makes. GroupNorm of 16x64x56x56 (13 MB) on two threads, grouped and not: forward 0.60 and
  // 0.51 ms, backward 1.10 and 0.93; of 8x256x64x64 (34 MB): 1.68 and 1.73, 2.25 and 3.77.
  bool tie_groups = true;
  // Kernels that read nothing of each other run in one parallel loop (horizontal fusion): all parameters of an optimizer's step.
  bool sweep_together = true;
  KernelChoices choices = {};
};

// One loop of a kernel: a class of axes of its members that run together.
struct KernelAxis {
  std::string name;
  int64_t extent = 0;
  int64_t tile = 0;    // elements in one tile; the whole extent unless this is a grid axis
  int64_t phases = 1;  // > 1: the loop is split into quotient and remainder by this, which divides extent and tile (if > 1)
  TileRule rule = {};  // of a grid axis: how its tile was chosen
  // Grouped axis: `each` elements for every element of the axis `of`, and a tile takes whole groups: c in y[n,c] = x[n,c] - m[n,c/8], where
  // m[n,g] is computed in the same tile. It is no grid axis itself, and is split into quotient and remainder.
  int of = -1;
  int64_t each = 1;
};

struct Member {
  size_t definition = 0;        // index into the definitions of the program's forward
  std::vector<int> left;        // per axis of its output: the index in Kernel::axes
  std::vector<int> reduced;     // per axis of its root reduction: the same
};

struct Kernel {
  std::string name;
  std::vector<KernelAxis> axes;
  std::vector<int> shared;      // grid axes (indices into axes), slowest-varying first
  // The last `sequential` grid axes run in order on one thread; reductions over them accumulate into the output and leave no partial results.
  size_t sequential = 0;
  std::vector<Member> members;
  std::vector<TensorId> results;  // outputs of the program, and what later kernels read; other members live in the tile
  // Costs at the sizes planned with. Moved: bytes that the kernel reads and writes, those read again after more than an L2 included.
  // Unavoidable: each element from outside once, each result once.
  int64_t bytes_moved = 0;
  int64_t bytes_unavoidable = 0;
  int64_t bytes_packed = 0;     // operands of products that tiles copy into the order in which they read them
  // The cost of short runs, as bytes that memory could have moved meanwhile: a tile that takes a few columns of a matrix waits for a line
  // of memory in each row.
  int64_t bytes_waited = 0;
  // The cost of multiplying outside of a triangle, as bytes that memory could have moved meanwhile: all rows of a tile run over the
  // widest range of any of them.
  int64_t bytes_in_vain = 0;
  int64_t bytes_priced() const { return bytes_moved + bytes_packed + bytes_waited + bytes_in_vain; }  // what plans are compared by
  int64_t flops = 0;
  bool streams = false;            // uses non-temporal stores
  bool combines_partials = false;  // has a second step, which adds up the partial results of its tiles
  bool epilogue = false;           // one small tile that runs in the second step of the kernel before it
  bool horizontal = false;         // runs in one parallel loop with the kernel before it: neither reads what the other computes
  std::string key;                 // what it computes, at which sizes (fusion/plan/kernel_key.h)
  KernelChoice choice;             // what measuring found for it, if anything
  std::string reason;              // why the next definition is not a member
  // Do reductions over the axis leave a partial result per tile?
  bool leaves_partials(int c) const;
};

// Common subexpressions of members of a kernel are stored in the tile if they take at least this long per element, about one exp: a store
// and a load from L1 or L2 take about 50 ps each.
constexpr int64_t kSharedInTile_ps = 140;

struct KernelPlan {
  std::vector<Kernel> kernels;  // none that has nothing to write
  int64_t bytes_moved = 0;
  int64_t bytes_unavoidable = 0;
  int64_t flops = 0;
  int reductions = 0;           // distinct reduction nodes
  int sweeps() const;           // parallel loops: kernels that are neither epilogues nor horizontally fused with the one before
};

// Deterministic; a pure function of its arguments. sizes must give every dim a value.
KernelPlan plan_kernels(const Program& p, const DimValues& sizes, const FusionOptions& options = {});

// One direction of a program with a backward, as a program of its own (its definitions are all in the forward region).
//   infer: inputs -> outputs;  forward: inputs -> outputs and stash;  backward: inputs, outputs, stash and cotangents
//   that it reads -> gradients.
Program infer_program(const Program& p);
Program forward_program(const Program& p);
Program backward_program(const Program& p);

}  // namespace xhat
