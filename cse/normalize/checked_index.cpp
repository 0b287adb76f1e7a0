#include "cse/normalize/checked_index.h"

#include <algorithm>

#include "cse/normalize/path_conditions.h"
#include "expr/core/conditions.h"
#include "expr/index/affine.h"

namespace xhat {

bool depends_on_data(const Arena& a, Id index) {
  return std::ranges::any_of(reachable(a, index), [&](Id id) { return is_read(a[id].op); });
}

std::unordered_map<Id, Id> conditions_on_paths(Arena& a, Id root) {
  auto narrow = [&](Id x, Id y) { return is_true(a, x) ? y : is_true(a, y) ? x : a.land(x, y); };
  auto join = [&](Id& known, Id other) {
    if (known == other || is_true(a, known)) return;
    known = is_true(a, other) ? other : a.binary(Op::lor, known, other);
  };
  return known_on_paths(a, root, a.boolean(true), narrow, join);
}

// Comparisons of integers, of data as well.
static bool is_about_positions_or_data(const Arena& a, Id condition) {
  return std::ranges::none_of(reachable(a, condition), [&](Id id) { return is_float(a[id].type) || is_reduction(a[id].op); });
}

bool proved_inside(Arena& a, const Uses& uses, Id index, Id extent, std::vector<AxisRange> axes, Id when) {
  std::vector<Id> known = conjuncts(a, when);
  // It is a position: that on which a scattered term falls, whatever the index is made of.
  const Id place = a.to(DType::i64, index);
  for (const AxisRange& r : axes)
    for (Id same : {a.binary(Op::eq, place, r.axis), a.binary(Op::eq, r.axis, place)})
      if (is_constant(a, r.begin, 0) && r.end == extent && std::ranges::count(known, same) > 0) return true;
  std::erase_if(known, [&](Id c) { return !is_about_positions_or_data(a, c); });
  Replacements positions;
  for (Id id : reachable(a, index)) {
    const Node n = a[id];
    const Definition* d = n.op == Op::read ? uses.definition(n.symbol) : nullptr;
    if (!d || d->is_call() || (a[d->body].op != Op::argmax && a[d->body].op != Op::argmin)) continue;
    Replacements at;
    for (size_t i = 0; i < d->axes.size(); ++i) at[d->axes[i].axis] = a.to(DType::i64, n.arg(i));
    const AxisRange r = reduce_axes(a[d->body])[0];
    std::vector<Id> taken{index, extent, when};
    for (const AxisRange& x : axes) taken.insert(taken.end(), {x.axis, x.begin, x.end});
    const Id fresh = a.fresh_axis(r.axis, all_axes(a, taken));
    axes.push_back({fresh, substitute(a, r.begin, at), substitute(a, r.end, at)});
    positions[id] = fresh;
  }
  const Id position = a.to(DType::i64, substitute(a, index, positions));
  return prove_bounds(a, {axes, known, position, extent}).verdict == BoundsAnswer::Verdict::proved;
}

bool reads_whole_axis(Arena& a, std::span<const Tensor> tensors, const Definition& map, size_t i) {
  const AxisRange& r = map.axes[i];
  for (const auto& [id, when] : conditions_on_paths(a, map.body)) {
    const Node n = a[id];
    if (n.op != Op::read || !is_true(a, when)) continue;
    for (size_t k = 0; k < n.arg_count; ++k)
      if (n.arg(k) == r.axis && tensors[n.symbol].shape[k] == r.end) return true;
  }
  return false;
}

}  // namespace xhat
