// Kernels that a library computes in our place (fusion/library/library_plan.h), on the device and stream of the others.
#pragma once
#include <map>
#include <memory>
#include <mutex>

#include "fusion/library/library_plan.h"
#include "runtime/device/device.h"
#include "runtime/device/drivers/math_library.h"

namespace xhat::runtime {

// Prepared once per context.
class LibraryKernel {
 public:
  LibraryKernel(MathLibrary& library, LibraryCall call) : library_(library), call_(std::move(call)) {}
  const LibraryCall& call() const { return call_; }
  const MathCall* find_on(const DeviceQueue& queue) const;  // null: the library does not do it
  const MathCall& on(const DeviceQueue& queue) const;       // throws Error if it does not do it there

 private:
  MathLibrary& library_;
  LibraryCall call_;
  mutable std::mutex mutex_;
  mutable std::map<const DeviceDriver*, std::unique_ptr<MathCall>> prepared_;
};

// Which libraries a direction may call.
struct LibraryChoice {
  LibraryUse use = LibraryUse::off;
  std::shared_ptr<MathLibrary> library;  // null: those of the target, if there are any
};

struct PlanWithLibraries {
  LibraryPlan planned;
  std::vector<std::shared_ptr<const LibraryKernel>> kernels;  // by kernel of the plan; null: ours
};

// Throws Error where use is on and there is no library.
PlanWithLibraries plan_for_device(const Program& p, const DimValues& sizes, const PlanRequest& request, const LibraryChoice& choice,
                                  const DeviceQueue& queue);

}  // namespace xhat::runtime
