// A definition that reads its own results, of the place before along one axis: y[n,t] = a[n,t]*y[n,t-1 else 0] + b[n,t], or of the place behind.
// No text has them, and no pass sees them: the kernel planner makes them of sums and products over ranges (fusion/plan/recurrences.h).
#pragma once
#include <optional>
#include <span>

#include "expr/core/expr.h"

namespace xhat {

struct Recurrence {
  Id read = kNone;     // of its own result, with what it is at the first place
  size_t along = 0;    // position of the axis
  bool falls = false;  // it begins with the last place
};

// body: of y[axes]. None: y is not read in it.
std::optional<Recurrence> recurrence_of(const Arena& a, TensorId y, std::span<const Id> axes, Id body);

}  // namespace xhat
