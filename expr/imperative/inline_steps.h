// A call of a program whose loops or branches stay: its steps, as items of the caller.
#pragma once
#include "expr/imperative/state.h"

namespace xhat::imperative {

// results: the caller's tensors for the callee's outputs.
Items inline_steps(Context& c, const Program& callee, const std::vector<TensorId>& arguments, const std::vector<TensorId>& results);

}  // namespace xhat::imperative
