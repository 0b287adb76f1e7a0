// The GPU that an op runs on: by our own drivers (runtime/device/drivers), or by Halide's runtime (Vulkan, which we have no driver for).
#pragma once
#include "runtime/device/device_buffer.h"

namespace xhat::runtime {

// As device_driver; Vulkan too.
DeviceDriver& driver_of(Target target, DeviceStream stream = nullptr);

// Throws Error, with what to do, where there is no such device.
void require_device(Target target);

// Where a call's work goes.
struct DeviceQueue {
  DeviceDriver* driver = nullptr;  // null: it runs on the CPU
  DeviceStream stream = nullptr;
  bool capturing = false;  // into a graph, which only launches may go to
  uint64_t thread = 0;     // of CUDA's stream that every thread has its own of, by one handle: whose
  bool same_stream(const DeviceQueue& q) const { return driver == q.driver && stream == q.stream && thread == q.thread; }
};
DeviceQueue queue_of(Target target, DeviceStream stream);
// Throws DeviceError if the stream is being captured: what the call would have to do, and cannot.
void refuse_in_capture(const DeviceQueue& queue, const std::string& action);

}  // namespace xhat::runtime
