#include "fusion/plan/running.h"

#include <algorithm>

#include "expr/index/linear.h"

namespace xhat::fusion {

std::optional<std::pair<size_t, int64_t>> axis_and_number(const Program& p, const DimValues& sizes, const Definition& d, Id bound) {
  const Arena& a = *p.arena;
  const Linear l = linear(a, bound);
  std::optional<size_t> found;
  int64_t rest = l.constant;
  for (auto [node, k] : l.terms) {
    auto at = std::ranges::find(d.axes, node, &AxisRange::axis);
    if (at != d.axes.end()) {
      if (found || k != 1) return {};
      found = static_cast<size_t>(at - d.axes.begin());
    } else if (a[node].free_axes().empty()) {
      rest += k * evaluate_extent(a, node, sizes);
    } else {
      return {};
    }
  }
  if (!found) return {};
  return std::pair(*found, rest);
}

std::vector<Id> indices_of(const std::vector<AxisRange>& axes) {
  std::vector<Id> indices;
  for (const AxisRange& r : axes) indices.push_back(r.axis);
  return indices;
}

std::vector<Id> extents_of(const std::vector<AxisRange>& axes) {
  std::vector<Id> extents;
  for (const AxisRange& r : axes) extents.push_back(r.end);
  return extents;
}

Definition defined_over(Program& p, const Definition& like, const std::string& name, const std::vector<AxisRange>& axes, Id body) {
  Definition d = like;
  d.targets = {p.add_tensor(name, (*p.arena)[body].type, extents_of(axes))};
  d.axes = axes;
  d.body = body;
  return d;
}

}  // namespace xhat::fusion
