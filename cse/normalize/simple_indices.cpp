#include "cse/normalize/simple_indices.h"

#include <algorithm>
#include <vector>

#include "expr/index/simplify_index.h"

namespace xhat {
namespace {

bool divides(const Arena& a, Id index) {
  const std::vector<Id> all = reachable(a, index);
  return std::ranges::any_of(all, [&](Id id) { return (a[id].op == Op::div || a[id].op == Op::mod) && is_integer(a[id].type); });
}

}  // namespace

Program with_simple_indices(const Program& given) {
  Program p = given;
  Arena& a = *p.arena;
  for (Definition& d : p.definitions()) {
    if (d.is_call()) continue;
    std::vector<AxisRange> axes = d.axes;
    if (const Node root = a[d.body]; is_reduction(root.op))
      for (const AxisRange& r : reduce_axes(root)) axes.push_back(r);
    d.body = rewrite(a, d.body, [&](Id id) {
      const Node n = a[id];
      if (n.op != Op::read) return id;
      std::vector<Id> indices(n.args().begin(), n.args().end());
      bool changed = false;
      for (Id& index : indices) {
        if (a[index].arg_count == 0 || !divides(a, index)) continue;
        const Id simple = fusion::simplified_index(a, index, axes);
        changed = changed || simple != index;
        index = simple;
      }
      return changed ? a.read(n.symbol, n.type, indices) : id;
    });
  }
  return p;
}

}  // namespace xhat
