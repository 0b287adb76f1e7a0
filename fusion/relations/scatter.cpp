#include "fusion/relations/scatter.h"

#include <algorithm>

namespace xhat {
namespace {

bool reads_tensor(const Arena& a, Id e) {
  return std::ranges::any_of(reachable(a, e), [&](Id id) { return is_read(a[id].op); });
}

}  // namespace

std::optional<Scatter> as_scatter(Arena& a, const Definition& d) {
  const Node& root = a[d.body];
  if (root.op != Op::sum) return std::nullopt;
  Scatter s{{}, a.boolean(true)};
  auto bounds_ranges = [&](Id axis) {
    auto in = [&](Id e) { return std::ranges::binary_search(a[e].free_axes(), axis); };
    return std::ranges::any_of(reduce_axes(root), [&](const AxisRange& r) { return in(r.begin) || in(r.end); });
  };
  std::vector<Id> conjuncts = {reduce_condition(root)};
  while (!conjuncts.empty()) {
    Id c = conjuncts.back();
    conjuncts.pop_back();
    const Node& n = a[c];
    if (n.op == Op::land) {
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
          bool used = std::ranges::any_of(s.targets, [&](auto& t) { return t.first == i; });
          auto free = a[index].free_axes();
          if (d.axes[i].axis != axis || used || !reads_tensor(a, index) || bounds_ranges(axis)) continue;
          if (std::ranges::any_of(d.axes, [&](const AxisRange& r) {
                return std::ranges::find(free, r.axis) != free.end();
              }))
            continue;
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
