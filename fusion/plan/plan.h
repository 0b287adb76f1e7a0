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
#include <string>
#include <vector>

#include "expr/core/machine_model.h"
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
  int64_t tile_bytes = 0;   // as in MachineModel, whatever the kernel leaves, and never one tile for being small
  int64_t least_tiles = 0;  // as in MachineModel
  int vectors = 0;          // per step of a loop, and per row of a product's block
  bool operator==(const KernelChoice&) const = default;
};
using KernelChoices = std::map<std::string, KernelChoice>;  // by Kernel::key

struct FusionOptions {
  FusePolicy policy = FusePolicy::full;
  fusion::RelayOptions relay = {};  // limits of policy relay
  // Reductions over a batch have partial results even where the batch is small, so that code does not depend on its size: for libraries
  // that serve any size (runtime/ahead/build/ahead.h).
  bool cut_small = false;
};

// What a direction is planned with: what the caller wants, the machine, and what is known of the program at hand.
struct PlanRequest {
  FusionOptions options = {};
  MachineModel machine = {};
  KernelChoices choices = {};
  std::vector<FusionGroup> groups = {};  // policy relay: the kernels. A definition that is in no group is a kernel of its own.
  std::vector<TensorId> alone = {};      // targets of definitions that a library computes: each is a kernel of its own
  bool in_turn = false;                  // one kernel after the other: a result is written over what others read
  bool one_thread = false;               // one thread of the CPU runs all tiles
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
  size_t definition = 0;     // index into the definitions of the program's forward
  std::vector<int> left;     // per axis of its output: the index in Kernel::axes
  std::vector<int> reduced;  // per axis of its root reduction: the same
};

struct Kernel {
  std::string name;
  std::vector<KernelAxis> axes;
  std::vector<int> shared;  // grid axes (indices into axes), slowest-varying first
  // The last `sequential` grid axes run in order on one thread; reductions over them accumulate into the output and leave no partial results.
  size_t sequential = 0;
  std::vector<Member> members;
  std::vector<TensorId> results;  // outputs of the program, and what later kernels read; other members live in the tile
  // Costs at the sizes planned with. Moved: bytes that the kernel reads and writes, those read again after more than an L2 included.
  // Unavoidable: each element from outside once, each result once.
  int64_t bytes_moved = 0;
  int64_t bytes_unavoidable = 0;
  int64_t bytes_packed = 0;  // operands of products that tiles copy into the order in which they read them
  // The cost of short runs, as bytes that memory could have moved meanwhile: a tile that takes a few columns of a matrix waits for a line
  // of memory in each row.
  int64_t bytes_waited = 0;
  // The cost of computing what nobody asked for, as bytes that memory could have moved meanwhile: outside of a triangle, because all rows of a
  // tile run over the widest range of any of them; in the idle lanes of vectors, where a tile has fewer columns than a vector.
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

struct KernelPlan {
  std::vector<Kernel> kernels;  // none that has nothing to write
  int64_t bytes_moved = 0;
  int64_t bytes_unavoidable = 0;
  int64_t flops = 0;
  int reductions = 0;  // distinct reduction nodes
  int sweeps() const;  // parallel loops: kernels that are neither epilogues nor horizontally fused with the one before
};

// Reduction nodes, each once.
int distinct_reductions(const Program& p);
// Deterministic; a pure function of its arguments. sizes must give every dim a value.
KernelPlan plan_kernels(const Program& p, const DimValues& sizes, const PlanRequest& request = {});

// One direction of a program with a backward, as a program of its own (its definitions are all in the forward region).
//   infer: inputs -> outputs;  forward: inputs -> outputs and stash;  backward: inputs, outputs, stash and cotangents
//   that it reads -> gradients.
Program infer_program(const Program& p);
Program forward_program(const Program& p);
Program backward_program(const Program& p);

}  // namespace xhat
