// What sizes decide of a direction before its kernels are planned: the list of these steps, each a header of this room.
//
// Needs: a program of one direction in normal form, sizes for all dims. Keeps: what the steps keep.
#pragma once
#include "fusion/plan/plan.h"

namespace xhat {

Program rewritten_for_sizes(const Program& p, const DimValues& sizes, const PlanRequest& request);

}  // namespace xhat
