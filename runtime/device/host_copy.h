// Tensors where the host can look at them.
#pragma once
#include <vector>

#include "expr/core/array.h"
#include "runtime/device/device.h"
#include "runtime/host/tensor_view.h"

namespace xhat::runtime {

// v, or what lies on a device, copied into `memory`.
TensorView on_host(TensorView v, std::vector<uint8_t>& memory, const DeviceQueue& queue);

// The numbers of a tensor on the host.
Array array_of(const TensorView& v);

}  // namespace xhat::runtime
