// Computing values, and writing them over others (assign.h).
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "runtime/lazy/state.h"

namespace xhat::lazy::detail {

struct Plan;
struct Cost {
  int64_t programs = 0, kernels = 0, bytes = 0;
};
// What realizing the nodes would run. on_plan: told of each program, in the order in which they would run.
Cost cost_of(const std::vector<NodePtr>& roots, std::function<void(const Plan&)> on_plan = {});

}  // namespace xhat::lazy::detail
