#include "expr/index/without_points.h"

#include <algorithm>

namespace xhat {

bool has_range_without_points(const Program& p, const DimValues& sizes) {
  const Arena& a = *p.arena;
  auto empty = [&](const AxisRange& r) {
    auto by_sizes = [&](Id e) { return a[e].axes_count == 0 && tensors_read(a, e).empty(); };
    return by_sizes(r.begin) && by_sizes(r.end) && evaluate_extent(a, r.end, sizes) <= evaluate_extent(a, r.begin, sizes);
  };
  return std::ranges::any_of(p.definitions(), [&](const Definition& d) {
    if (d.is_call()) return false;
    return std::ranges::any_of(d.axes, empty) || std::ranges::any_of(reachable(a, d.body), [&](Id id) {
             return is_reduction(a[id].op) && std::ranges::any_of(reduce_axes(a[id]), empty);
           });
  });
}

Program with_reads_anywhere(const Program& p) {
  Program out = p;
  Arena& a = *out.arena;
  for (Definition& d : out.definitions())
    if (!d.is_call())
      d.body = rewrite(a, d.body, [&](Id id) {
        const Node n = a[id];
        if (n.op != Op::read || n.arg_count == 0) return id;
        const std::vector<Id> indices(n.args().begin(), n.args().end());
        return a.read_or(n.symbol, n.type, indices, a.constant(n.type, 0));
      });
  return out;
}

Program readable_at(const Program& p, const DimValues& sizes) { return has_range_without_points(p, sizes) ? with_reads_anywhere(p) : p; }

}  // namespace xhat
