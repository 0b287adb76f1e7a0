// Owns memory on a device.
#pragma once
#include "runtime/device/drivers/driver.h"
#include "runtime/host/tensor_view.h"

namespace xhat::runtime {

class DeviceBuffer {
 public:
  DeviceBuffer(DeviceDriver& driver, int64_t bytes) : driver_(driver), bytes_(bytes), memory_(driver.allocate(bytes)) {}
  ~DeviceBuffer() { driver_.release(memory_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  DeviceDriver& driver() const { return driver_; }
  DeviceMemory memory() const { return memory_; }
  int64_t bytes() const { return bytes_; }
  TensorView view(DType type, std::span<const int64_t> extents) const {
    TensorView v(reinterpret_cast<void*>(memory_), type, extents, {});
    v.place = driver_.target();
    return v;
  }

 private:
  DeviceDriver& driver_;
  int64_t bytes_;
  DeviceMemory memory_;
};

}  // namespace xhat::runtime
