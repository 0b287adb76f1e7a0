// The kernels of a direction, of which a library computes some.
//
// A sum that a library computes is a kernel of its own, so what could be fused with it moves memory instead: that pays where there is
// much arithmetic for each byte. Which sums go there is a choice by cost. Both ways are planned and priced; figures of a large GPU
// (library_plan.cpp) are reasoned, not measured.
#pragma once
#include <functional>

#include "fusion/library/library_calls.h"
#include "fusion/plan/plan.h"

namespace xhat {

// off: our kernels only. automatic: where that is estimated to be faster. on: wherever a library has a function.
enum class LibraryUse : uint8_t { off, automatic, on };

struct LibraryOptions {
  LibraryUse use = LibraryUse::automatic;
  std::function<bool(const LibraryCall&)> takes = {};  // is there a library, and does it do this; null: everything
};

struct LibraryPlan {
  Program program;  // with definitions for what products multiply, if that was no tensor
  KernelPlan plan;
  std::vector<std::optional<LibraryCall>> calls;  // by kernel: what a library does in its place
};

// Deterministic. With use off, or no sum that a library knows: the program as it is, and plan_kernels' plan.
LibraryPlan plan_with_libraries(const Program& p, const DimValues& sizes, const FusionOptions& fusion, const LibraryOptions& libraries);

}  // namespace xhat
