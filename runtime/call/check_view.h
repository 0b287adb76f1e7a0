// What a tensor that a caller hands to an op must be. All of it is checked before anything runs.
#pragma once
#include <string_view>
#include <unordered_map>

#include "expr/core/program.h"
#include "runtime/device/device.h"
#include "runtime/host/tensor_view.h"

namespace xhat::runtime {

// The tensor t of p, for a call that runs on `queue`; written: by it. Throws Error, which names tensor, what is wrong and what was
// expected; DeviceError if it is about where its memory lies.
void check_view(const Program& p, TensorId t, const TensorView& v, bool written, const DeviceQueue& queue);

// bound: the tensors of a direction of `op`, its inputs first. Throws Error if an output overlaps another of them in memory. over_inputs: unless
// it lies on an input, all of it (runtime/cpu/output_over.h).
void check_overlap(const std::string& op, const Program& direction, const std::vector<TensorId>& bound,
                   const std::vector<TensorView>& views, bool over_inputs);

// The tensors that a caller may pass, by name: inputs, outputs, cotangents and gradients. Names are those of p, which stays.
using ArgumentNames = std::unordered_map<std::string_view, TensorId>;
ArgumentNames argument_names(const Program& p);
// Throws Error for a name that is none of them, and says which are.
TensorId argument_of(const Program& p, const ArgumentNames& names, std::string_view name);

}  // namespace xhat::runtime
