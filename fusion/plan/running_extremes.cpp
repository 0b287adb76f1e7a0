#include "fusion/plan/running_extremes.h"

#include <algorithm>
#include <set>

namespace xhat {
namespace {

// A reduction over a range of which one end moves with an axis around it.
bool is_running(const Arena& a, const Node& root) {
  if (!is_reduction(root.op)) return false;
  const auto axes = reduce_axes(root);
  return axes.size() == 1 && a[axes[0].begin].free_axes().empty() != a[axes[0].end].free_axes().empty();
}

bool is_running_extreme(const Arena& a, const Definition& d) {
  if (d.is_call()) return false;
  const Node& root = a[d.body];
  if ((root.op != Op::max && root.op != Op::min) || !is_running(a, root) || !is_true(a, reduce_condition(root))) return false;
  const AxisRange r = reduce_axes(root)[0];
  return std::ranges::none_of(d.axes, [&](const AxisRange& x) {
    return (a[r.begin].depends_on(x.axis) || a[r.end].depends_on(x.axis)) && a[reduce_body(root)].depends_on(x.axis);
  });
}

}  // namespace

Program recompute_running_extremes(const Program& p) {
  Program made = p;
  Arena& a = *made.arena;
  std::set<TensorId> read, in_ranges;  // by the backward; by its sums over ranges that move
  for (const Definition& d : p.backward.definitions) {
    if (d.is_call()) continue;
    const auto tensors = tensors_read(a, d.body);
    read.insert(tensors.begin(), tensors.end());
    if (is_running(a, a[d.body])) in_ranges.insert(tensors.begin(), tensors.end());
  }
  std::vector<Definition> again;
  for (const Definition& d : p.forward.definitions) {
    if (!is_running_extreme(a, d) || !in_ranges.contains(d.target())) continue;
    const auto needed = tensors_read(a, d.body);
    // Of what is computed itself there may be other bits where it is computed again.
    if (!std::ranges::all_of(needed, [&](TensorId t) { return read.contains(t) && p.tensor(t).role == Role::input; })) continue;
    Definition copy = d;
    const Tensor known = p.tensor(d.target());
    const TensorId fresh = made.add_tensor(known.name + "_again", known.type, known.shape);
    copy.targets = {fresh};
    again.push_back(copy);
    for (Definition& reader : made.backward.definitions)
      if (!reader.is_call())
        reader.body = rewrite(a, reader.body, [&](Id id) {
          const Node n = a[id];
          if (!is_read(n.op) || n.symbol != d.target()) return id;
          const std::vector<Id> indices(read_indices(n).begin(), read_indices(n).end());
          return n.op == Op::read ? a.read(fresh, n.type, indices) : a.read_or(fresh, n.type, indices, n.args().back());
        });
  }
  made.backward.definitions.insert(made.backward.definitions.begin(), again.begin(), again.end());
  return made;
}

}  // namespace xhat
