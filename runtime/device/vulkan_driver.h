// Vulkan through Halide's runtime. It has one context and one queue, waits after every launch, and only runs pipelines that were compiled together
// with their launches.
#pragma once
#include "Halide.h"
#include "runtime/device/drivers/driver.h"

namespace xhat::runtime {

// Ignores streams; load() throws Bug. Throws DeviceError if there is no device.
DeviceDriver& vulkan_driver();

Halide::Target vulkan_target();  // the host with a Vulkan device

// Arguments: values, then buffers, then a result of the pipeline that nothing writes.
std::unique_ptr<LoadedKernel> vulkan_kernel(Halide::Callable code, const std::string& name);

}  // namespace xhat::runtime
