// Plans a direction whose sums a library may compute.
//
// A library's sum is a kernel of its own, so fusion with it is lost, and values around it go through memory. It pays if there is much
// arithmetic per byte. Plans with and without the call are priced; the rates of a large GPU (library_plan.cpp) are estimated, not measured.
#pragma once
#include <functional>

#include "fusion/library/library_calls.h"
#include "fusion/plan/plan.h"

namespace xhat {

// off: our kernels only. automatic: the library where it is estimated to be faster. on: the library wherever it has a function.
enum class LibraryUse : uint8_t { off, automatic, on };

struct LibraryOptions {
  LibraryUse use = LibraryUse::automatic;
  std::function<bool(const LibraryCall&)> takes = {};  // can the installed library do this call? null: it can do all
};

struct LibraryPlan {
  Program program;  // with definitions of operands that were expressions
  KernelPlan plan;
  std::vector<std::optional<LibraryCall>> calls;  // per kernel: the call that replaces it, if any
};

// Deterministic. With use off, or no sum that a library knows: the program as it is, and plan_kernels' plan.
LibraryPlan plan_with_libraries(const Program& p, const DimValues& sizes, const PlanRequest& request, const LibraryOptions& libraries);

}  // namespace xhat
