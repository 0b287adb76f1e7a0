// What a tensor that a caller hands to an op must be. All of it is checked before anything runs.
#pragma once
#include "expr/core/program.h"
#include "runtime/device/device.h"
#include "runtime/host/tensor_view.h"

namespace xhat::runtime {

// The tensor t of p, for a call that runs on `queue`; written: by it. Throws Error, which names tensor, what is wrong and what was
// expected; DeviceError if it is about where its memory lies.
void check_view(const Program& p, TensorId t, const TensorView& v, bool written, const DeviceQueue& queue);

}  // namespace xhat::runtime
