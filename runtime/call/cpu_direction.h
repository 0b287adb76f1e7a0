// Runs one direction of an op at given sizes: its kernels in order, tile by tile, on the caller's buffers.
#pragma once
#include <functional>
#include <memory>
#include <span>

#include "fusion/plan/plan.h"
#include "runtime/cpu/kernel_cache.h"
#include "runtime/cpu/output_over.h"
#include "runtime/device/device.h"
#include "runtime/host/tile_walk.h"

namespace xhat::runtime {


// What the outer loop of a kernel does, whose code takes these arguments. Its code is left as 0.
WalkKernel walk_of(const Program& p, const Kernel& k, const KernelSpec& spec, const KernelArguments& arguments);

// Memory for what kernels hand on.
std::vector<WalkTemporary> temporaries_of(const Program& p, const KernelPlan& plan, const DimValues& sizes);

// An output that is added to a tensor on the device, in the place of being written.
struct DeviceSum {
  TensorId output;
  TensorView target;
};

// A program of one direction (fusion/plan/plan.h), planned and compiled for the sizes. Immutable; safe from many threads.
class Direction {
 public:
  virtual ~Direction() = default;
  const Program& program() const { return program_; }
  const DimValues& sizes() const { return sizes_; }
  const KernelPlan& plan() const { return plan_; }
  double compile_ms() const { return compile_ms_; }
  // Its kernels, by where their code came from: this call's compiler, the disk; the others were in memory.
  int compiled() const { return compiled_; }
  int loaded() const { return loaded_; }
  // Of kernels whose code is a slower one than was planned: "y: its code is scalar: …".
  const std::vector<std::string>& refused() const { return refused_; }

  // views: per tensor of the program; inputs and outputs must be set, of the sizes planned for. Checked by the caller.
  // timed: told after each kernel what it took. queue: of the GPU that it was made for; sums: there.
  using Timed = std::function<void(const Kernel&, double ns)>;
  virtual RunCounts run(ThreadPool& pool, std::span<const TensorView> views, const Timed& timed = {}, const DeviceQueue& queue = {},
                        std::span<const DeviceSum> sums = {}) const = 0;

 protected:
  Direction(Program program, DimValues sizes) : program_(std::move(program)), sizes_(std::move(sizes)) {}
  Program program_;
  DimValues sizes_;
  KernelPlan plan_;
  double compile_ms_ = 0;
  int compiled_ = 0, loaded_ = 0;
  std::vector<std::string> refused_;
};

// On the CPU.
class DirectionKernels : public Direction {
 public:
  // dense: per tensor of the program, whether the caller's buffer has no gaps. Compiles the kernels, two at a time. over: throws
  // Error if a kernel, or a later one, reads the input elsewhere. progress: CompileOptions::on_compile.
  DirectionKernels(Program program, DimValues sizes, std::vector<bool> dense, const PlanRequest& request,
                   std::shared_ptr<KernelCache> cache, const std::vector<OutputOver>& over = {},
                   const std::function<void(size_t, size_t)>& progress = {});
  ~DirectionKernels() override;
  RunCounts run(ThreadPool& pool, std::span<const TensorView> views, const Timed& timed = {}, const DeviceQueue& queue = {},
                std::span<const DeviceSum> sums = {}) const override;

 private:
  std::vector<size_t> planned_;  // by kernel of the walk: of the plan
  std::vector<std::shared_ptr<const CompiledKernel>> code_;
  std::unique_ptr<TileWalk> walk_;
};

}  // namespace xhat::runtime
