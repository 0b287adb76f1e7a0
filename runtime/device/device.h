// The GPU that an op runs on: through our own drivers (runtime/device/drivers), or for Vulkan through Halide's runtime.
#pragma once
#include "runtime/device/device_buffer.h"

namespace xhat::runtime {

// Like device_driver, and also for Vulkan.
DeviceDriver& driver_of(Target target, DeviceStream stream = nullptr);

// Throws Error, with a remedy, if there is no such device.
void require_device(Target target);

// The queue that a call's work goes to.
struct DeviceQueue {
  DeviceDriver* driver = nullptr;  // null: the call runs on the CPU
  DeviceStream stream = nullptr;
  bool capturing = false;  // the stream is being captured into a graph: only launches are allowed
  uint64_t thread = 0;     // identifies the thread, if the stream is CUDA's per-thread default stream
  bool same_stream(const DeviceQueue& q) const { return driver == q.driver && stream == q.stream && thread == q.thread; }
};
DeviceQueue queue_of(Target target, DeviceStream stream);
// Throws DeviceError if the stream is being captured. action: what the call would have to do.
void refuse_in_capture(const DeviceQueue& queue, const std::string& action);

}  // namespace xhat::runtime
