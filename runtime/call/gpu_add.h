// Adding to gradients that lie on a device.
#pragma once
#include "runtime/call/cpu_direction.h"

namespace xhat::runtime {

// Enqueues target += value: two tensors on the device of the queue, of one type and shape, without gaps.
RunCounts add_on_device(ThreadPool& pool, const TensorView& target, const TensorView& value, const DeviceQueue& queue);

}  // namespace xhat::runtime
