// Copies of device tensors for the host.
#pragma once
#include <vector>

#include "expr/core/array.h"
#include "runtime/device/device.h"
#include "runtime/host/tensor_view.h"

namespace xhat::runtime {

// v itself if the host can read it, else a view of its copy in `memory`.
TensorView on_host(TensorView v, std::vector<uint8_t>& memory, const DeviceQueue& queue);

// The elements of a tensor as an array on the host.
Array array_of(const TensorView& v);

}  // namespace xhat::runtime
