// What the planner needs to know of a GPU.
#pragma once
#include "fusion/plan/plan.h"

namespace xhat::runtime {

FusionOptions for_gpu(FusionOptions options);

}  // namespace xhat::runtime
