#include "runtime/device.h"

#include "runtime/vulkan_driver.h"

namespace xhat::runtime {

DeviceDriver& driver_of(Target target, DeviceStream stream) { return target == Target::vulkan ? vulkan_driver() : device_driver(target, stream); }

void require_device(Target target) { driver_of(target); }

}  // namespace xhat::runtime
