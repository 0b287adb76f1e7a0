#include "cse/algebra/known_indices.h"

#include <algorithm>
#include <set>

#include "cse/match/bodies.h"

namespace xhat {
namespace {

// The same expression but for its axes, which are noted.
bool alike_but_for_axes(const Arena& a, Id pattern, Id id, Replacements& axes) {
  const Node &x = a[pattern], &y = a[id];
  if (x.op == Op::axis && y.op == Op::axis) return axes.try_emplace(pattern, id).first->second == id;
  if (pattern == id && x.free_axes().empty()) return true;
  if (x.op != y.op || x.type != y.type || x.symbol != y.symbol || x.arg_count != y.arg_count || x.arg_count == 0) return false;
  for (size_t i = 0; i < x.arg_count; ++i)
    if (!alike_but_for_axes(a, x.arg(i), y.arg(i), axes)) return false;
  return true;
}

}  // namespace

KnownIndices::KnownIndices(const Program& p) {
  for (const Definition& d : p.forward.definitions)
    if (!d.is_call()) remember(p, d);
}

void KnownIndices::remember(const Program& p, const Definition& d) {
  Arena& a = *p.arena;
  std::vector<AxisRange> axes = d.axes;
  Id body = d.body;
  if (const Node root = a[body]; is_reduction(root.op)) {
    if (!is_true(a, reduce_condition(root))) return;
    for (const AxisRange& r : reduce_axes(root)) axes.push_back(r);
    body = reduce_body(root);
  }
  std::vector<Id> open = {body};
  std::set<Id> met;
  while (!open.empty()) {
    const Id id = open.back();
    open.pop_back();
    if (!met.insert(id).second) continue;
    const Node n = a[id];
    if (is_reduction(n.op)) continue;  // it may be over nothing
    // A choice evaluates what it asks; what is read with a value outside may be outside.
    const bool chooses = n.op == Op::select || n.op == Op::land || n.op == Op::lor;
    for (size_t i = 0; n.op != Op::read_or && i < (chooses ? 1 : n.arg_count); ++i) open.push_back(n.arg(i));
    if (n.op != Op::read) continue;
    for (size_t i = 0; i < n.arg_count; ++i) {
      const Id index = a.to(DType::i64, n.arg(i));
      if (tensors_read(a, index).empty()) continue;
      if (!std::ranges::all_of(axes, [&](const AxisRange& r) { return a[index].depends_on(r.axis) && range_is_plain(a, r); })) continue;
      all_.push_back({index, p.tensor(n.symbol).shape[i], axes});
    }
  }
}

bool KnownIndices::inside(Arena& a, Id value, Id extent, std::span<const AxisRange> scope) const {
  const Id index = a.to(DType::i64, value);
  return std::ranges::any_of(all_, [&](const Known& k) {
    Replacements axes;
    if (k.extent != extent || !alike_but_for_axes(a, k.index, index, axes)) return false;
    return std::ranges::all_of(axes, [&](const auto& pair) {
      auto range_in = [&](std::span<const AxisRange> all, Id axis) { return std::ranges::find(all, axis, &AxisRange::axis); };
      const auto known = range_in(k.axes, pair.first);
      const auto here = range_in(scope, pair.second);
      return here != scope.end() && here->begin == known->begin && here->end == known->end;
    });
  });
}

}  // namespace xhat
