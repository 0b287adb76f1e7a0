// Conditions as bounds of loops.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "expr/core/expr.h"

namespace xhat {

// Runs over the axis of a loop: from the largest of begins to the smallest of ends.
struct LoopBounds {
  std::vector<Id> begins, ends;
};
// Splits `p && q`, also where it is written as `if p then q else false`.
std::vector<Id> conjuncts_of(const Arena& a, Id condition);
// Makes of a condition on an axis a bound of its loop: k <= i + 1 ends at i + 2. Arena nodes are made for the bound. False: it is none.
bool bound_by(Arena& a, Id condition, Id axis, LoopBounds* bounds);
// Where an equation has the axis: j of `k + 1 == j + 1`. kNone: the condition is no equation, or another.
Id place_by(Arena& a, Id condition, Id axis);
// Where the window begins that a range is, in terms of the axis that it moves with: max(0,h-1)..min(H,h+2) at h-1. kNone: it is no window. Of
// u..T another u takes some of the same places, a triangle; of max(0,1-h)..3 the edge alone moves. value: of a bound in the middle of all axes.
Id moving_begin(const Arena& a, const AxisRange& r, const std::function<int64_t(Id)>& value);

}  // namespace xhat
