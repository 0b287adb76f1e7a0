// The outer loop of one direction as data: per kernel its tiles, the arguments of each call of the compiled code, and the second step, which
// adds up partial results. runtime/call makes it from kernel specs; a library compiled ahead of time has it as a table and runs the
// same loop. Knows neither programs nor Halide.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "expr/core/expr.h"
#include "fusion/plan/tile_rule.h"
#include "runtime/host/axis_kind.h"
#include "runtime/host/compiled_kernel.h"
#include "runtime/host/idle_states.h"
#include "runtime/host/tensor_view.h"
#include "runtime/host/thread_pool.h"

namespace xhat::runtime {

// An axis of the outer loop in the plan.
struct PlannedAxis {
  int64_t extent = 0;
  TileRule rule = {};
};

// An axis of the outer loop in the code: several planned axes collapsed, or a part of one.
struct WalkAxis {
  int64_t extent = 0;
  int64_t tile = 0;
  AxisKind kind = AxisKind::untiled;
  std::vector<size_t> planned = {};  // its tile is the product of the tiles of these, divided by `divisor`
  int64_t divisor = 1;
};

struct WalkScalar {
  int shared = -1;    // position in WalkKernel::shared; -1: the scalar is `value` in every tile
  bool count = false;  // the tile's number of elements; else its origin
  int64_t value = 0;
};

// A dimension of a tensor in the code.
struct WalkDimension {
  int64_t extent = 0;
  int64_t step = 1;  // elements of the tensor's dimension `of` per step
  size_t of = 0;
};

struct WalkInput {
  int64_t tensor = -1;  // -1: a size, given as a number in `value`
  DType type = DType::f32;
  double value = 0;
  std::vector<WalkDimension> dims = {};
};

struct WalkResult {
  int64_t tensor = 0;
  DType type = DType::f32;        // the type that the code writes
  DType final_type = DType::f32;  // the type of the tensor
  Op op = Op::constant;           // the reduction, if it leaves partial results
  bool dense = true;
  std::vector<WalkDimension> dims = {};
  std::vector<size_t> left = {};  // dimensions of the tile's buffer, slowest first
  std::vector<std::pair<size_t, size_t>> moves = {};  // (position in shared, dimension): the tile's origin there shifts the buffer
  std::vector<size_t> reduced = {};  // positions in shared that it reduces over: one partial result per tile
};

struct WalkKernel {
  std::vector<PlannedAxis> planned;
  std::vector<WalkAxis> shared;  // slowest first
  size_t sequential = 0;           // one thread runs the tiles of the last so many axes in order
  std::vector<WalkScalar> scalars;
  std::vector<WalkInput> inputs;
  std::vector<WalkResult> results;
  size_t code = 0;
  bool epilogue = false;  // part of the second step of the kernel before it
  bool horizontal = false;   // runs in one sweep with the kernel before it
};

struct WalkTemporary {
  int64_t tensor = 0;
  DType type = DType::f32;
  std::vector<int64_t> shape;
};

struct WalkPlan {
  std::vector<WalkKernel> kernels;
  std::vector<WalkTemporary> temporaries;
  int64_t tensors = 0;
};

// The tile of each axis of the loop, by the planner's tile rules.
std::vector<int64_t> tiles_by_rule(const WalkKernel& k);

// Counters of one run, for tests.
struct RunCounts {
  int64_t kernels = 0;      // sweeps started
  int64_t tiles = 0;
  int64_t finishes = 0;     // second steps
  int64_t allocations = 0;  // allocations of memory for temporaries
  int64_t launches = 0;     // on a GPU
  int64_t uploads = 0, downloads = 0;  // tensors copied to a device and back
  int64_t library_calls = 0;  // kernels that a library computed
};

// Immutable; safe from many threads.
class TileWalk {
 public:
  // codes: indexed by WalkKernel::code; they must outlive the walk. Extents and tiles must be known.
  TileWalk(WalkPlan plan, std::vector<const TileCode*> codes);
  ~TileWalk();

  const WalkPlan& plan() const { return plan_; }

  // views: per tensor; all except temporaries must be set, with the sizes planned for. The caller checks them.
  // timed: called after each kernel with its time; then each kernel is a sweep of its own.
  using Timed = std::function<void(size_t kernel, double ns)>;
  RunCounts run(ThreadPool& pool, std::span<const TensorView> views, const Timed& timed = {}) const;

 private:
  struct Prepared;  // values of a kernel that do not depend on a run
  struct State;
  std::unique_ptr<State> new_state() const;
  void sweep(size_t first, size_t end, State& state, ThreadPool& pool) const;
  void bind(size_t index, State& state, ThreadPool& pool) const;
  void run_tile(size_t index, State& state, int worker, int64_t number) const;
  void finish(size_t index, State& state, ThreadPool& pool) const;

  WalkPlan plan_;
  std::vector<const TileCode*> codes_;
  std::vector<Prepared> prepared_;
  std::vector<size_t> given_;  // tensors that kernels read or write and that are no temporaries
  mutable IdleStates<State> idle_;
};

}  // namespace xhat::runtime
