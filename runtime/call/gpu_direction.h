// One direction of an op on a GPU: its kernels one after the other, what they hand on kept on the device.
#pragma once
#include "runtime/call/cpu_direction.h"
#include "runtime/call/library_kernel.h"
#include "runtime/gpu/gpu_kernel.h"

namespace xhat::runtime {

class GpuDirection : public Direction {
 public:
  GpuDirection(Program program, DimValues sizes, const PlanRequest& request, const DeviceQueue& queue,
               const LibraryChoice& libraries = {}, DiskCache* disk = nullptr);
  ~GpuDirection() override;
  // Enqueues its kernels. Waits only for copies from and to the host, of what does not lie on the device, and if timed.
  RunCounts run(ThreadPool& pool, std::span<const TensorView> views, const Timed& timed, const DeviceQueue& queue,
                std::span<const DeviceSum> sums) const override;

 private:
  struct Instance;
  struct State;
  class Taken;  // a state, for one run
  std::unique_ptr<State> new_state(const DeviceQueue& queue) const;
  std::unique_ptr<State> idle_on(const DeviceQueue& queue) const;
  void give_back(std::unique_ptr<State> state) const;

  std::vector<std::shared_ptr<Instance>> kernels_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<State>> idle_;  // the last used comes last
};

// The kernels of a direction as a GPU gets them.
std::vector<KernelSpec> gpu_specs(const Program& program, const KernelPlan& plan, const DimValues& sizes, Target target);
std::vector<DType> stored_types(const Program& program);

}  // namespace xhat::runtime
