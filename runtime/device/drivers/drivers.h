// What the drivers share. For runtime/device/drivers/ only.
#pragma once
#include <map>
#include <mutex>

#include "runtime/device/drivers/driver.h"

namespace xhat::runtime {

DeviceDriver& cuda_driver(DeviceStream stream);
DeviceDriver& opencl_driver(DeviceStream stream);

// What a user lacks if there is no such device, and the error that says so.
std::string remedy_for(Target target);
DeviceError no_device(Target target, DeviceFailure why, const std::string& detail);
DeviceError no_memory(Target target, int64_t bytes, const std::string& detail);

// The drivers of one target, by context and device. They stay: nothing tells us that nobody will call any more.
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
