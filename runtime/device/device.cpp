#include "runtime/device/device.h"

#include <atomic>

#include <fmt/format.h>

#include "runtime/device/vulkan_driver.h"

namespace xhat::runtime {

constexpr uintptr_t kStreamOfThread = 2;  // CU_STREAM_PER_THREAD

DeviceDriver& driver_of(Target target, DeviceStream stream) {
  if (target != Target::vulkan) return device_driver(target, stream);
  if (stream) throw DeviceError(DeviceFailure::bad_stream, "target vulkan: there are no streams for it; leave out CallOptions::stream");
  return vulkan_driver();
}

void require_device(Target target) { driver_of(target); }

DeviceQueue queue_of(Target target, DeviceStream stream) {
  if (target == Target::cpu) {
    if (stream) throw DeviceError(DeviceFailure::bad_stream, "target cpu: there are no streams for it; leave out CallOptions::stream");
    return {};
  }
  static std::atomic<uint64_t> threads = 0;
  thread_local const uint64_t thread = ++threads;
  const bool of_thread = target == Target::cuda && reinterpret_cast<uintptr_t>(stream) == kStreamOfThread;
  DeviceDriver& driver = driver_of(target, stream);
  return {&driver, stream, driver.capturing(stream), of_thread ? thread : 0};
}

void refuse_in_capture(const DeviceQueue& queue, const std::string& action) {
  if (!queue.capturing) return;
  throw DeviceError(
      DeviceFailure::bad_stream,
      fmt::format("the stream is being captured into a graph, and this call would have to {}, which a capture does not allow; "
                  "make the same call once before the capture, with the same Stash and all tensors on the device",
                  action));
}

}  // namespace xhat::runtime
