#include "runtime/device/drivers/driver.h"

#include <cstdlib>
#include <dlfcn.h>

#include "runtime/device/drivers/drivers.h"
#include "runtime/device/drivers/library.h"

namespace xhat {

std::string_view name_of(Target target) {
  switch (target) {
    case Target::cpu: return "cpu";
    case Target::cuda: return "cuda";
    case Target::opencl: return "opencl";
    case Target::vulkan: return "vulkan";
  }
  return "?";
}

namespace runtime {

DriverLibrary::DriverLibrary(const char* variable, const char* file) {
  const char* other = std::getenv(variable);
  if (other && *other) file = other;
  handle_ = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle_) return;
  const char* why = dlerror();
  problem_ = why ? why : std::string(file) + " cannot be loaded";
  if (other && *other) problem_ += std::string("; ") + variable + " names it";
}

void* DriverLibrary::address(const char* name) {
  void* f = handle_ ? dlsym(handle_, name) : nullptr;
  if (handle_ && !f) problem_ = std::string("the driver is too old: it has no ") + name;
  return f;
}

std::string remedy_for(Target target) {
  switch (target) {
    case Target::cuda: return "an NVIDIA driver (libcuda.so.1)";
    case Target::opencl: return "an OpenCL driver (for CPUs: the packages ocl-icd-libopencl1 and pocl-opencl-icd)";
    case Target::vulkan: return "a Vulkan driver (for CPUs: the packages libvulkan1 and mesa-vulkan-drivers)";
    case Target::cpu: break;
  }
  return "";
}

DeviceError no_device(Target target, DeviceFailure why, const std::string& detail) {
  return DeviceError(why, "target " + std::string(name_of(target)) + ": no device found; install " + remedy_for(target) +
                              ", or use --target cpu (" + detail + ")");
}

DeviceMemory DeviceDriver::part(DeviceMemory memory, int64_t offset, int64_t) { return memory + static_cast<DeviceMemory>(offset); }
void DeviceDriver::release_part(DeviceMemory) noexcept {}

DeviceError no_memory(Target target, int64_t bytes, const std::string& detail) {
  return DeviceError(DeviceFailure::no_memory, "target " + std::string(name_of(target)) + ": out of memory: the device has no " +
                                                   std::to_string(bytes) + " bytes left (" + detail +
                                                   "); free some, or make the tensors smaller");
}

bool DeviceDriver::hidden_from_host(const void*, int64_t) { return false; }

DeviceDriver& device_driver(Target target, DeviceStream stream) {
  switch (target) {
    case Target::cuda: return cuda_driver(stream);
    case Target::opencl: return opencl_driver(stream);
    case Target::cpu:
    case Target::vulkan: break;
  }
  throw Bug("target " + std::string(name_of(target)) + " has no driver here");
}

}  // namespace runtime
}  // namespace xhat
