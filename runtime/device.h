// The GPU that an op runs on: by our own drivers (runtime/devices), or by Halide's runtime (Vulkan, which we have no driver for).
#pragma once
#include "runtime/devices/driver.h"
#include "runtime/tensor_view.h"

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

// Memory on a device; without gaps.
class DeviceBuffer {
 public:
  DeviceBuffer(DeviceDriver& driver, int64_t bytes) : driver_(driver), bytes_(bytes), memory_(driver.allocate(bytes)) {}
  ~DeviceBuffer() { driver_.release(memory_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  DeviceDriver& driver() const { return driver_; }
  DeviceMemory memory() const { return memory_; }
  int64_t bytes() const { return bytes_; }
  TensorView view(DType type, std::span<const int64_t> extents) const;

 private:
  DeviceDriver& driver_;
  int64_t bytes_;
  DeviceMemory memory_;
};

}  // namespace xhat::runtime
