// The order in which a reduction's result has its dimensions.
#pragma once
#include <algorithm>
#include <vector>

#include "expr/core/expr.h"

namespace xhat {

// The axes in the order in which reads have them, where some have all of them and agree: a sum of t[n,k,i,j] over k lies as n, i, j. Else as
// they are given.
inline std::vector<Id> axes_as_read(const Arena& a, Id reduction, const std::vector<Id>& axes) {
  std::vector<Id> found;
  for (Id id : reachable(a, reduction)) {
    if (!is_read(a[id].op)) continue;
    std::vector<Id> order;
    for (Id index : read_indices(a[id]))
      if (std::ranges::find(axes, index) != axes.end() && std::ranges::find(order, index) == order.end()) order.push_back(index);
    if (order.size() < axes.size()) continue;
    if (!found.empty() && found != order) return axes;
    found = order;
  }
  return found.empty() ? axes : found;
}

}  // namespace xhat
