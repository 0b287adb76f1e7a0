// Conditions as bounds of loops.
#pragma once
#include <vector>

#include "expr/core/expr.h"

namespace xhat {

bool is_free_in(const Arena& a, Id axis, Id id);

// Runs over the axis of a loop: from the largest of begins to the smallest of ends.
struct LoopBounds {
  std::vector<Id> begins, ends;
};
// Splits `p && q`, also where it is written as `if p then q else false`.
std::vector<Id> conjuncts_of(const Arena& a, Id condition);
// Makes of a condition on an axis a bound of its loop: k <= i + 1 ends at i + 2. Arena nodes are made for the bound. False: it is none.
bool bound_by(Arena& a, Id condition, Id axis, LoopBounds* bounds);

}  // namespace xhat
