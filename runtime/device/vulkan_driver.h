// Vulkan by Halide's runtime, which has one context and one queue, waits after every launch, and takes no code from elsewhere: what
// it runs is a pipeline that was compiled with its launches.
#pragma once
#include "Halide.h"
#include "runtime/device/drivers/driver.h"

namespace xhat::runtime {

// Streams are ignored; its load() throws Bug. Throws DeviceError where there is no device.
DeviceDriver& vulkan_driver();

Halide::Target vulkan_target();  // the host with such a device

// Takes values, then buffers, then a result of the pipeline's that nothing writes.
std::unique_ptr<LoadedKernel> vulkan_kernel(Halide::Callable code, const std::string& name);

}  // namespace xhat::runtime
