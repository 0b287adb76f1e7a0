// Runs one direction of an op at given sizes: its kernels in order, tile by tile, on the caller's buffers.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <span>

#include "fusion/plan.h"
#include "runtime/kernel_cache.h"
#include "runtime/tensor_view.h"
#include "runtime/thread_pool.h"

namespace xhat::runtime {

// Counts what a run did, for tests.
struct RunCounts {
  int64_t kernels = 0;      // sweeps started
  int64_t tiles = 0;
  int64_t finishes = 0;     // second steps
  int64_t allocations = 0;  // of memory for temporaries
};

// A program of one direction (fusion/plan.h), planned and compiled for the sizes. Immutable; safe from many threads.
class DirectionKernels {
 public:
  // dense: per tensor of the program, whether the caller's buffer has no gaps. Compiles the kernels, two at a time.
  DirectionKernels(Program program, DimValues sizes, std::vector<bool> dense, const FusionOptions& fusion,
            std::shared_ptr<KernelCache> cache);
  ~DirectionKernels();

  const Program& program() const { return program_; }
  const DimValues& sizes() const { return sizes_; }
  const KernelPlan& plan() const { return plan_; }
  double compile_ms() const { return compile_ms_; }

  // views: per tensor of the program; inputs and outputs must be set, of the sizes planned for. Checked by the caller.
  // timed: told after each kernel what it took.
  using Timed = std::function<void(const Kernel&, double ns)>;
  RunCounts run(ThreadPool& pool, std::span<const TensorView> views, const Timed& timed = {}) const;

 private:
  struct Instance;
  struct State;
  std::unique_ptr<State> new_state() const;
  void run_kernel(const Instance& kernel, size_t index, State& state, ThreadPool& pool) const;
  void finish(const Instance& kernel, size_t index, State& state, ThreadPool& pool) const;

  Program program_;
  DimValues sizes_;
  KernelPlan plan_;
  std::vector<std::unique_ptr<Instance>> kernels_;
  double compile_ms_ = 0;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<State>> idle_;  // states of earlier runs, to be used again
};

// out = op over the first dimension of partial: [rows, elements of out], in index order; floats are summed in double.
// out may have gaps. Does elements [first, last) of out, so that threads can share the work.
void combine_partials(Op op, const void* partial, int64_t rows, const TensorView& out, int64_t first,
                      int64_t last);
inline void combine_partials(Op op, const void* partial, int64_t rows, const TensorView& out) {
  combine_partials(op, partial, rows, out, 0, out.elements());
}

// target += value, element by element.
void add_into(const TensorView& target, const TensorView& value);

}  // namespace xhat::runtime
