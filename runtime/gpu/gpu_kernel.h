// A kernel's code for a GPU: Halide's compilers make it, from what gpu_lower writes down; a driver loads and runs it.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/gpu/gpu_lower.h"
#include "runtime/store/disk_cache.h"

namespace xhat::runtime {

Halide::Target halide_target(Target target);  // the host with that device
DeviceKind kind_of(Target target);

// Plain data; no device is needed to make it.
struct DeviceCode {
  DeviceKernel kernel;             // its text as PTX, OpenCL C or SPIR-V; Vulkan's launches have no entries
  std::vector<uint32_t> values;    // tensors of the spec that are passed as numbers, by number of a LaunchArg
  std::vector<GpuBuffer> buffers;  // by number of a LaunchArg
  bool idle() const { return kernel.launches.empty() && kernel.zeros.empty(); }
};
// The values that a kernel takes, as far as they follow from the sizes of its spec.
std::vector<SizeValue> values_of(const DeviceCode& code, const KernelSpec& spec);

// The kernels that one code serves: those of a class of sizes (runtime/kernel/gpu_sizes.cpp).
struct GpuClass {
  Target target;
  KernelSpec spec;  // with_class_representatives_for_gpu
  std::vector<DType> stored;
  std::string key;  // equal for equal classes
};
GpuClass class_of(Target target, const KernelSpec& spec, const std::vector<DType>& stored);
DeviceCode device_code(const GpuClass& c);
// The same without text: launches, buffers and values alone, in a fraction of the time.
DeviceCode launches_of(const GpuClass& c);

// Ready to be loaded into any context.
class CompiledGpuKernel {
 public:
  explicit CompiledGpuKernel(const GpuClass& c, DiskCache* disk = nullptr);
  const DeviceCode& code() const { return code_; }
  // Loaded once per context, but not during a capture.
  const LoadedKernel& on(const DeviceQueue& queue) const;

 private:
  DeviceCode code_;
  mutable std::mutex mutex_;
  mutable std::map<const DeviceDriver*, std::unique_ptr<LoadedKernel>> loaded_;
};

// Each class is compiled once per process. With a disk cache, CUDA's and OpenCL's: once.
std::shared_ptr<const CompiledGpuKernel> compiled_for(const GpuClass& c, DiskCache* disk = nullptr);

}  // namespace xhat::runtime
