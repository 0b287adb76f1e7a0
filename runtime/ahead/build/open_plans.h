// Plans for all sizes of several open dims, or of one that is no batch.
//
// Kernels are grouped and cut once, at nominal sizes. Their code knows no open size: extents are arguments (make_open_spec). What the outer loop
// needs to know of sizes is linear or a product of them, and is found by plans at a grid of sizes (size_polynomials.h). A size of 0 has no loops,
// so each choice of the dims that are 0 has a plan of its own.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "fusion/plan/plan.h"
#include "runtime/ahead/build/ahead_plans.h"
#include "runtime/ahead/build/ahead_sizes.h"

namespace xhat::runtime {

// Thrown where code cannot serve all sizes.
struct SizesInCode {
  std::string why;
};

// A direction, or the checks of its data: the numbers of their plans follow one another.
struct OpenPart {
  Program program;
  PlanRequest request;
  std::vector<bool> dense;  // per tensor
};

// nominal: sizes to plan for, where they are given. layout: of the tensors that are not dense. Throws SizesInCode.
using FoundOpen = std::function<void(AheadVariant, const Slots&)>;
void find_open_plans(const std::vector<OpenPart>& parts, AheadSizes& sizes, const DimValues& nominal, AheadKernels& kernels,
                     AheadLayout layout, const FoundOpen& found);

}  // namespace xhat::runtime
