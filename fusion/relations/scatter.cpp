#include "fusion/relations/scatter.h"

#include <algorithm>

namespace xhat {
std::optional<Scatter> as_scatter(Arena& a, const Definition& d) {
  const Node& root = a[d.body];
  if (root.op != Op::sum && root.op != Op::prod && root.op != Op::max && root.op != Op::min) return std::nullopt;
  Scatter s{{}, a.boolean(true)};
  // Of places that no data decide only sums and multiples of axes, and of their quotients and remainders, count (c % 4 * C + c / 4):
  // Halide refuses a scatter to places that descend, or turn round.
  auto is_place = [&](Id index) {
    const std::vector<Id> parts = reachable(a, index);
    if (std::ranges::any_of(parts, [&](Id id) { return is_read(a[id].op); })) return true;
    auto ascends = [&](Id id) {
      const Node& n = a[id];
      if (n.op == Op::mod || n.op == Op::div) return a[n.arg(0)].op == Op::axis;
      if (n.op == Op::constant) return n.integer >= 0;
      return n.op == Op::axis || n.op == Op::dim || n.op == Op::add || n.op == Op::mul || n.op == Op::cast;
    };
    const bool walked = std::ranges::any_of(reduce_axes(root),
                                            [&](const AxisRange& r) { return a[index].depends_on(r.axis); });
    return walked && std::ranges::all_of(parts, ascends);
  };
  auto is_target = [&](Id axis) { return std::ranges::any_of(s.targets, [&](auto& t) { return d.axes[t.first].axis == axis; }); };
  auto asked_for = [&](Id axis) {  // by an index that was found
    return std::ranges::any_of(s.targets, [&](auto& t) { return a[t.second].depends_on(axis); });
  };
  std::vector<Id> conjuncts = {reduce_condition(root)};
  while (!conjuncts.empty()) {
    Id c = conjuncts.back();
    conjuncts.pop_back();
    const Node& n = a[c];
    const bool lazy = n.op == Op::select && a[n.arg(2)].op == Op::constant && a[n.arg(2)].integer == 0;  // if p then q else false
    if (n.op == Op::land || lazy) {
      conjuncts.push_back(n.arg(0));
      conjuncts.push_back(n.arg(1));
      continue;
    }
    bool taken = false;
    if (n.op == Op::eq)
      for (int side = 0; side < 2 && !taken; ++side) {
        Id axis = n.arg(static_cast<size_t>(side)), index = n.arg(static_cast<size_t>(1 - side));
        while (a[axis].op == Op::cast && !is_float(a[axis].type)) axis = a[axis].arg(0);
        for (size_t i = 0; i < d.axes.size() && !taken; ++i) {
          if (d.axes[i].axis != axis || is_target(axis) || !is_place(index) || bounds_a_range(a, d.body, axis)) continue;
          // The index may depend on other axes of the result, ids[n,b] in row n, but not on one that an index decides.
          auto free = a[index].free_axes();
          if (asked_for(axis) || std::ranges::find(free, axis) != free.end() || std::ranges::any_of(free, is_target)) continue;
          s.targets.emplace_back(i, index);
          taken = true;
        }
      }
    if (!taken) s.rest = is_true(a, s.rest) ? c : a.land(c, s.rest);
  }
  if (s.targets.empty()) return std::nullopt;
  return s;
}

}  // namespace xhat
