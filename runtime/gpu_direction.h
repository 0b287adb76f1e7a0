// One direction of an op on a GPU: its kernels one after the other, what they hand on kept on the device.
#pragma once
#include "runtime/executor.h"
#include "runtime/gpu_kernel.h"
#include "runtime/gpu_options.h"
#include "runtime/library_kernel.h"

namespace xhat::runtime {

class GpuDirection : public Direction {
 public:
  GpuDirection(Program program, DimValues sizes, const FusionOptions& fusion, Target target, const LibraryChoice& libraries);
  ~GpuDirection() override;
  RunCounts run(ThreadPool& pool, std::span<const TensorView> views, const Timed& timed = {}) const override;

 private:
  struct Instance;
  struct State;
  std::unique_ptr<State> new_state(DeviceDriver& driver) const;

  Target target_;
  std::vector<std::shared_ptr<Instance>> kernels_;
  mutable IdleStates<State> idle_;
};

// The kernels of a direction as a GPU gets them.
std::vector<KernelSpec> gpu_specs(const Program& program, const KernelPlan& plan, const DimValues& sizes, Target target);
std::vector<DType> stored_types(const Program& program);

}  // namespace xhat::runtime
