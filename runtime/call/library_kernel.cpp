#include "runtime/call/library_kernel.h"

#include <fmt/format.h>

#include "fusion/plan/for_sizes.h"

namespace xhat::runtime {

const MathCall* LibraryKernel::find_on(const DeviceQueue& queue) const {
  std::lock_guard lock(mutex_);
  auto [it, fresh] = prepared_.try_emplace(queue.driver);
  if (fresh) try {
      refuse_in_capture(queue, "prepare a library's function");
      it->second = library_.prepare(*queue.driver, call_);
    } catch (...) {
      prepared_.erase(it);
      throw;
    }
  return it->second.get();
}

const MathCall& LibraryKernel::on(const DeviceQueue& queue) const {
  if (const MathCall* call = find_on(queue)) return *call;
  DeviceDriver& driver = *queue.driver;
  throw Error(fmt::format("target {}: the library does not do {} on {}, as it did on the first device; use one device, or --libraries off",
                          name_of(driver.target()), to_text(call_), driver.device_name()));
}

namespace {

MathLibrary* library_of(const LibraryChoice& choice, DeviceDriver& driver) {
  if (choice.use == LibraryUse::off) return nullptr;
  if (choice.library) return choice.library.get();
  if (driver.target() != Target::cuda) {
    if (choice.use == LibraryUse::automatic) return nullptr;
    throw Error(fmt::format("target {}: there are no libraries for it, only for cuda; use --libraries auto", name_of(driver.target())));
  }
  const std::string blas = cublas_problem(), dnn = cudnn_problem();
  if (blas.empty() || dnn.empty()) return &cuda_math();
  if (choice.use == LibraryUse::automatic) return nullptr;
  throw Error(fmt::format("target cuda: neither cuBLAS nor cuDNN was found; install one, or use --libraries auto ({}; {})", blas, dnn));
}

}  // namespace

PlanWithLibraries plan_for_device(const Program& p, const DimValues& sizes, const PlanRequest& request, const LibraryChoice& choice,
                                  const DeviceQueue& queue) {
  MathLibrary* library = library_of(choice, *queue.driver);
  std::map<TensorId, std::shared_ptr<const LibraryKernel>> prepared;  // by result
  LibraryOptions options;
  options.use = library ? choice.use : LibraryUse::off;
  options.takes = [&](const LibraryCall& call) {
    auto kernel = std::make_shared<const LibraryKernel>(*library, call);
    try {
      if (!kernel->find_on(queue)) return false;
    } catch (const DeviceError&) {  // what is there does not work: ours does
      if (choice.use == LibraryUse::on) throw;
      return false;
    }
    prepared[result_of(call).tensor] = kernel;
    return true;
  };
  PlanWithLibraries made{plan_with_libraries(rewritten_for_sizes(p, sizes, request), sizes, request, options), {}};
  for (const auto& call : made.planned.calls) made.kernels.push_back(call ? prepared.at(result_of(*call).tensor) : nullptr);
  return made;
}

}  // namespace xhat::runtime
