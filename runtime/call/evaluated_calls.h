// What the reference evaluator says of a call of kernels: why a check of its data failed, and where a result first is not finite.
#pragma once
#include "expr/core/array.h"
#include "runtime/call/op_plans.h"
#include "runtime/device/device.h"

namespace xhat::runtime {

// Copies, of memory of the host or of a device.
Arrays arrays_of(const Program& p, const std::vector<TensorId>& tensors, const std::vector<TensorView>& views, const DeviceQueue& queue);

// A check failed: runs the evaluator to say which index of which tensor is out of range, or which argmax is over nothing, and where, and
// throws that as an Error. Returns where a range is empty and only what was derived reads there.
void explain_failure(const Ready& ready, const std::vector<TensorView>& views, const DeviceQueue& queue);

// CompileOptions::check_values, of what a call has computed. inputs: of the side, before it ran, for a result may lie over one.
void check_results(const Ready& ready, const Arrays& inputs, const Arrays& written, const std::vector<TensorView>& views,
                   const DeviceQueue& queue);

}  // namespace xhat::runtime
