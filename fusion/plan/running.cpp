#include "fusion/plan/running.h"

#include <algorithm>

#include "expr/core/conditions.h"
#include "expr/index/hull.h"
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

std::optional<MovingEnd> moving_end(const Program& p, const DimValues& sizes, const Definition& d) {
  Arena& a = *p.arena;
  const Node root = a[d.body];
  if (!is_reduction(root.op)) return {};
  const std::vector<AxisRange> axes = reduce_axes(root);
  if (axes.size() != 1) return {};
  const AxisRange r = axes[0];
  const std::vector<Id> begins = operands_of(a, r.begin, Op::maximum), ends = operands_of(a, r.end, Op::minimum);
  // What of these bounds is not the moving one, as conditions.
  auto conditions = [&](const std::vector<Id>& bounds, bool begin, Id moving, Id axis, Id* all) {
    for (Id b : bounds) {
      if (b == moving) continue;
      if (a[b].depends_on(axis)) return false;
      *all = a.land(*all, begin ? a.binary(Op::le, b, r.axis) : a.binary(Op::lt, r.axis, b));
    }
    return true;
  };
  std::optional<MovingEnd> found;
  for (bool begin : {false, true})
    for (Id bound : begin ? begins : ends) {
      const auto moving = axis_and_number(p, sizes, d, bound);
      if (!moving) continue;
      const Id axis = d.axes[moving->first].axis, other = begin ? r.end : r.begin;
      if (found && a[reduce_body(root)].depends_on(axis)) continue;
      MovingEnd m{moving->first, moving->second, begin, 0, reduce_condition(root)};
      if (!conditions(begin ? begins : ends, begin, bound, axis, &m.condition)) continue;
      if (a[other].free_axes().empty()) {
        m.fixed = evaluate_extent(a, other, sizes);
      } else {
        Ranges ranges;
        for (const AxisRange& x : d.axes) ranges.emplace(x.axis, x);
        const auto box = Hull(a, ranges).box({r.axis, begin ? a.integer(0) : other, begin ? other : a.integer(0)});
        if (!box || !conditions(begin ? ends : begins, !begin, kNone, axis, &m.condition)) continue;
        m.fixed = evaluate_extent(a, begin ? box->end : box->begin, sizes);
      }
      found = m;
    }
  return found;
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
