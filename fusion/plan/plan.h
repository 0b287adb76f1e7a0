// The kernel planner: which definitions of one direction share a kernel, and over which axes.
//
// Every kernel has the same shape: an outer loop over the tiles of the axes its members share, run in parallel; inside,
// the members in order, whole in their other axes. A member that reduces over a shared axis leaves one partial result
// per tile, and a small second step adds them up.
//
//     s[n] = sum(d: x[n,d]*w[d])                one kernel over tiles of n: s and y from the same tile of x,
//     y[n,d] = x[n,d]*s[n]                      g as one partial row per tile, then a finishing step
//     g[d] = sum(n: x[n,d]*y[n,d])
//
// A sum of products is too large for that. Where other axes are shared as well, one thread takes the tiles of the summed one in
// order, and each adds to what those before it have left:
//
//     p[b,i,j] = sum(d: q[b,i,d]*k[b,j,d])      one kernel over tiles of b and, in order, of i: a tile has some rows of p,
//     y[b,i,d] = sum(j: p[b,i,j]*v[b,j,d])      which nobody else ever sees
//     g[b,j,d] = sum(i: p[b,i,j]*u[b,i,d])
//
// Input is a program of one direction in normal form (cse/normalize/auto_inliner): a definition's body is either free of
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

// Of a machine that nobody asked about: plans, libraries for other machines. As for a last cache of 32 MiB (runtime/call/machine.h).
constexpr int64_t kStreamBytes = 32 << 20;

struct FusionOptions {
  FusePolicy policy = FusePolicy::full;
  // For policy relay: its limits, and the groups of the program at hand; what is in none is its own kernel.
  fusion::RelayOptions relay = {};
  std::vector<FusionGroup> groups = {};
  std::vector<TensorId> alone = {};  // by target: definitions that are kernels of their own, since a library computes them
  // A tile that is looked at more than once must stay in cache: bytes of L2 a tile may fill, of the 2 MB of the
  // reference machine. A channel of BatchNorm's backward (x, dy, dx: 1.2 MB) still pays as one tile.
  int64_t cache_bytes = 3 << 19;
  // A re-read from beyond this is counted as moved again.
  int64_t reference_l2_bytes = 2 << 20;
  // What one tile touches. Softmax 4096x1024, two threads: 2.1 ms with 32 KB, 1.6 with 64, 1.5 with 128, 1.45 with 256
  // and with 512; a tile costs about a microsecond beyond its work.
  int64_t tile_bytes = 256 << 10;
  // Times this for kernels that leave partial results (LayerNorm's backward: 3.5 ms with 128 KB tiles, 2.5 with 512 KB).
  int64_t partial_tile_factor = 2;
  // And this for products: what they pack is packed once per tile (attention, S = T = 256, backward: 6.7 ms with 1, 4.8 with 2).
  int64_t product_tile_factor = 2;
  // And this for what is as large as what goes past the cache, and leaves none: memory likes long runs (huber, 8M elements, two threads:
  // 1.73 and 2.44 ms with 256 KB, 1.49 and 2.18 with 1 MB, 1.52 and 2.16 with 4 MB).
  int64_t long_tile_factor = 4;
  // Below this a kernel is one tile: waking a second thread costs more than it saves.
  int64_t serial_bytes = 64 << 10;
  // A kernel that touches as much writes its results past the cache (runtime/cpu/ir/stream_stores.h), if memory is what it waits
  // for: if it has at most this much arithmetic per byte. Two threads, plain and past the cache: BatchNorm's forward (19 ps)
  // 1.8 and 1.3 ms, tanh's backward (8 ps) 7.2 and 5.3 ms, mish's (44 ps) 5.1 and 4.3 ms, its forward (143 ps) 6.6 and 7.3 ms.
  // Nothing given: kStreamBytes for a plan; what compile() makes is for this machine (runtime/call/machine.h).
  std::optional<int64_t> stream_bytes = {};
  int64_t stream_ps_per_byte = 50;
  bool fills_the_cache(int64_t bytes) const { return bytes >= stream_bytes.value_or(kStreamBytes); }
  // Programs of at most so many definitions get the cheapest of all plans, not only the one found step by step: of 6, about
  // a millisecond; of 8, ten.
  size_t exact_definitions = 6;
  // Tiles wanted at the least, so that threads share the work evenly.
  int64_t least_tiles = 16;
  // Of a scatter, each of whose tiles goes over all that is added: no more than the machine needs (embedding_sum's backward, two
  // threads: 0.186 ms in 16 tiles, 0.138 in 4). Nothing given: least_tiles; what compile() makes is for this machine. Values do not
  // depend on it: where a kernel sums across its tiles it has least_tiles.
  std::optional<int64_t> scatter_tiles = {};
  // Reductions over a batch are cut into tiles however small the batch, so that code need not know its size: for libraries
  // that serve any size (runtime/ahead/build/ahead.h).
  bool cut_small = false;
  // A product may be cut along its sum if one thread walks its tiles in order (Kernel::in_order).
  bool carry_sums = true;
  // Mean and variance beyond the cache are put together from those of parts (fusion/plan/moments.h).
  bool split_moments = true;
  // Axes may be tied to others (KernelAxis::of) where what is read does not stay in the last cache: there a second look is cheaper than
  // the tiles that spare it. GroupNorm of 16x64x56x56 (x 13 MB), two threads, tied and apart: forward 0.60 and 0.51 ms, backward 1.10 and
  // 0.93; of 8x256x64x64 (34 MB) 1.68 and 1.73, 2.25 and 3.77.
  bool tie_groups = true;
  // Kernels that read nothing of each other are one sweep: all parameters of an optimizer's step.
  bool sweep_together = true;
  KernelChoices choices = {};
};

// A class of axes that the planner found to be the same loop, over all members of a kernel.
struct KernelAxis {
  std::string name;
  int64_t extent = 0;
  int64_t tile = 0;  // elements of it in one tile; the extent unless it is shared
  int64_t phases = 1;  // > 1: to be walked as quotient and remainder by this, which divides extent and tile (if > 1)
  TileRule rule = {};  // of a shared axis: how its tile was chosen
  // Its elements are groups of `each`, one for every element of class `of`, and a tile takes whole groups: c in y[n,c] = x[n,c] - m[n,c/8],
  // where m[n,g] was made in the same tile. Then it is not shared itself; it is walked as quotient and remainder.
  int of = -1;
  int64_t each = 1;
};

struct Member {
  size_t definition = 0;        // index into the program's definitions
  std::vector<int> left;        // per left axis: its class in Kernel::axes
  std::vector<int> reduced;     // per reduction axis of a root reduction: its class
};

struct Kernel {
  std::string name;
  std::vector<KernelAxis> axes;
  std::vector<int> shared;      // classes whose tiles are the outer loop, slowest-varying first
  // So many of them, the last ones, are walked in order by one thread: what is summed over them is carried from tile to tile in
  // the result itself, and leaves no partial results.
  size_t in_order = 0;
  std::vector<Member> members;
  std::vector<TensorId> results;  // computed here and needed elsewhere (outputs, later kernels)
  // Figures for the sizes planned with. Moved: what the kernel reads and writes, re-reads beyond the reference L2
  // included; unavoidable: each element from outside once, each result once.
  int64_t bytes_moved = 0;
  int64_t bytes_unavoidable = 0;
  int64_t bytes_packed = 0;     // of operands of products, copied by each tile into the order in which it reads them
  // Bytes that memory could have moved while a kernel waits for it, because its tiles touch tensors in short runs, as where they take a few
  // columns of a matrix.
  int64_t bytes_waited = 0;
  // Bytes that could be moved while products multiply what lies beyond a triangle or a band, because a tile has many of its rows.
  int64_t bytes_in_vain = 0;
  int64_t bytes_priced() const { return bytes_moved + bytes_packed + bytes_waited + bytes_in_vain; }  // what plans are compared by
  int64_t flops = 0;
  bool streams = false;         // writes its results past the cache
  bool finish = false;          // has a second step that adds up per-tile partial results
  // One tile, small, that takes what the kernel before it has finished: part of that one's second step.
  bool follows = false;
  // In one parallel sweep with the kernel before it: neither reads what the other makes.
  bool beside = false;
  std::string key;              // what it computes, at which sizes (fusion/plan/kernel_key.h)
  KernelChoice choice;          // of the options, if they have one for it
  std::string reason;           // why it ends where it ends
  // Does what is summed over the class leave a partial result per tile?
  bool leaves_partials(int c) const;
};

// What several members of a kernel compute at one point is computed once per tile if it takes at least this long, about one
// exp: worth a store and a load from L1 or L2 (about 50 ps an element each).
constexpr int64_t kSharedInTile_ps = 140;

struct KernelPlan {
  std::vector<Kernel> kernels;  // of those that have nothing to write there are none
  int64_t bytes_moved = 0;
  int64_t bytes_unavoidable = 0;
  int64_t flops = 0;
  int reductions = 0;           // distinct Reduce nodes
  int sweeps() const;           // kernels that follow no other, and are not beside one
};

// Deterministic; a pure function of its arguments. sizes must give every dim a value.
KernelPlan plan_kernels(const Program& p, const DimValues& sizes, const FusionOptions& options = {});

// One direction of a program with a backward, as a program of its own (all definitions forward).
//   infer: inputs -> outputs;  forward: inputs -> outputs and stash;  backward: inputs, outputs, stash and cotangents
//   that it reads -> gradients.
Program infer_program(const Program& p);
Program forward_program(const Program& p);
Program backward_program(const Program& p);

}  // namespace xhat
