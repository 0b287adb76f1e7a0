// Ranges of sizes with the same plan. A plan at one size is a row of numbers (runtime/host/walk_archive.h). The plans of a range are alike:
// numbers of kind `structure`, `code` and `choice` are equal, those of kind `size` are linear in the size.
#pragma once
#include <functional>
#include <vector>

#include "runtime/host/variant.h"
#include "runtime/host/walk_archive.h"

namespace xhat::runtime {

// The plans of a range: each number is base + slope * size.
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
  bool lenient;  // at some of the sizes the planner would have made other choices
  PlanFit fit;
};

// Thrown if hardly any two sizes have the same plan.
struct TooManyPlans {};

// Plans at a size, in one of several ways. May throw TooManyPlans.
using PlansAt = std::function<Slots(int64_t size, int way)>;

// The ranges of the sizes first to last, or up to at least some thousand if there are too many plans beyond. Where a way gives other code for each
// size, the next way is tried. Plans at some hundred sizes.
std::vector<PlanRange> find_ranges(const PlansAt& at, int ways, int64_t first, int64_t last);

PlanRange range_of_one(const Slots& slots);

}  // namespace xhat::runtime
