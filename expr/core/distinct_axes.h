// A name for one range: what is known of an axis is then known wherever it stands.
#pragma once
#include <span>
#include <vector>

#include "expr/core/expr.h"

namespace xhat {

struct DistinctAxes {
  Id body;
  std::vector<AxisRange> ranges;  // of all axes: those around the body, then bound ones as they are met from the root
  std::vector<Id> names;          // not to be given to new axes: all that stand here, or stood before
};

// Renames bound axes so that each has one range in the whole body and none that of an axis around it:
//   sum(k in 0..3: x[k]) + sum(k in 0..N: y[k])   =>   sum(k in 0..3: x[k]) + sum(k_1 in 0..N: y[k_1])
// Reductions of equal text over equal ranges stay equal.
DistinctAxes with_distinct_axes(Arena& a, std::span<const AxisRange> around, Id body);

}  // namespace xhat
