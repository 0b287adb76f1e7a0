// The checks of a direction's data at one set of sizes, compiled (runtime/call/run_time_checks.h). On the CPU, also for GPUs: the data come
// from there.
#pragma once
#include <memory>
#include <mutex>

#include "runtime/call/cpu_direction.h"
#include "runtime/call/run_time_checks.h"

namespace xhat::runtime {

class DataChecks {
 public:
  // checks outlives this. dense: per tensor of the direction.
  DataChecks(const Checks& checks, DimValues dims, std::vector<bool> dense, const PlanRequest& request,
             std::shared_ptr<KernelCache> cache);

  // views: per tensor of the direction. Safe from many threads; allocates nothing once warm.
  bool fail(ThreadPool& pool, std::span<const TensorView> views, const DeviceQueue& queue) const;

 private:
  std::unique_ptr<Direction> compiled(const Program& p) const;

  const Checks& checks_;
  DimValues dims_;
  std::vector<bool> dense_;
  PlanRequest request_;
  std::shared_ptr<KernelCache> cache_;
  std::unique_ptr<Direction> first_;
  // Made when the first look at the data was not enough.
  mutable std::once_flag once_;
  mutable std::unique_ptr<Direction> exact_;
};

}  // namespace xhat::runtime
