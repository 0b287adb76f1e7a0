#include "cse/normalize/simple_indices.h"

#include <span>
#include <vector>

#include "expr/index/simplify_index.h"

namespace xhat {
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
      if (!is_read(n.op)) return id;
      std::vector<Id> args(n.args().begin(), n.args().end());
      bool changed = false;
      for (Id& index : std::span(args).first(read_indices(n).size())) {
        if (a[index].arg_count == 0 || !fusion::divides(a, index)) continue;
        const Id simple = fusion::simplified_index(a, index, axes);
        changed = changed || simple != index;
        index = simple;
      }
      return changed ? a.with_args(id, args) : id;
    });
  }
  return p;
}

}  // namespace xhat
