// Computing values, and writing them over others.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "runtime/lazy/state.h"

namespace xhat::lazy::detail {

// The array is value from now on; its memory when that is realized.
void assign_value(State& s, const NodePtr& value, const Site& site);

struct Cost {
  int64_t programs = 0, kernels = 0, bytes = 0;
};
// What realizing the nodes would run.
struct Plan;
// on_plan: told of each program, in the order in which they would run.
Cost cost_of(const std::vector<NodePtr>& roots, std::function<void(const Plan&)> on_plan = {});

}  // namespace xhat::lazy::detail
