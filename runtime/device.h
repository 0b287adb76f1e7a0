// The GPU that an op runs on: by our own drivers (runtime/devices), or by Halide's runtime (Vulkan, which we have no driver for).
#pragma once
#include "runtime/devices/driver.h"

namespace xhat::runtime {

// As device_driver; Vulkan too.
DeviceDriver& driver_of(Target target, DeviceStream stream = nullptr);

// Throws Error, with what to do, where there is no such device.
void require_device(Target target);

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

 private:
  DeviceDriver& driver_;
  int64_t bytes_;
  DeviceMemory memory_;
};

}  // namespace xhat::runtime
