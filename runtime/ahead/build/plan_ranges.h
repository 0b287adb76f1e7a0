// The ranges of sizes with the same plan. A plan at one size is a row of numbers (runtime/host/walk_archive.h); two plans are alike if
// the numbers that say what is done are equal, and those that are sizes lie on a line.
#pragma once
#include <functional>
#include <vector>

#include "runtime/host/variant.h"
#include "runtime/host/walk_archive.h"

namespace xhat::runtime {

// The plans of a range: numbers as base + slope * size.
struct PlanFit {
  std::vector<int64_t> base, slope;
  std::vector<AheadReal> reals;

  int64_t number(size_t i, int64_t n) const { return base[i] + slope[i] * n; }
  double real(size_t i, int64_t n) const {
    double v = reals[i].base + reals[i].slope * static_cast<double>(n);
    return reals[i].inverse ? 1 / v : v;
  }
};

struct PlanRange {
  int64_t first, last;
  int way;
  bool lenient;  // the planner would have preferred other numbers at some of the sizes
  PlanFit fit;
};

// Thrown where hardly any two sizes have the same plan.
struct TooManyPlans {};

// The plan at a size, planned in one of several ways. May throw TooManyPlans.
using PlansAt = std::function<Slots(int64_t size, int way)>;

// Of the sizes from first to last, or to some thousand at least if plans become too many beyond. Where the first way gives other
// code for each size, the next one is tried. Asks for the plans of some hundred sizes.
std::vector<PlanRange> find_ranges(const PlansAt& at, int ways, int64_t first, int64_t last);

PlanRange range_of_one(const Slots& slots);

}  // namespace xhat::runtime
