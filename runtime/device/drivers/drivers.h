// Shared by the drivers. For runtime/device/drivers/ only.
#pragma once
#include <map>
#include <mutex>

#include "runtime/device/drivers/driver.h"

namespace xhat::runtime {

DeviceDriver& cuda_driver(DeviceStream stream);
DeviceDriver& opencl_driver(DeviceStream stream);

// What to install if a target has no device, and the errors that say so.
std::string remedy_for(Target target);
DeviceError no_device(Target target, DeviceFailure why, const std::string& detail);
DeviceError no_memory(Target target, int64_t bytes, const std::string& detail);

// The drivers of one target, by context and device. They are never destroyed, because a later call may need them.
template <class Driver>
class DriversByContext {
 public:
  Driver& of(void* context, void* device = nullptr) {
    std::lock_guard lock(mutex_);
    std::unique_ptr<Driver>& driver = drivers_[{context, device}];
    if (!driver) driver = std::make_unique<Driver>(context, device);
    return *driver;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<void*, void*>, std::unique_ptr<Driver>> drivers_;
};

}  // namespace xhat::runtime
