#include "cse/normalize/few_terms.h"

#include <algorithm>

#include "cse/normalize/ranges.h"
#include "expr/core/conditions.h"
#include "expr/rules/simplify.h"

namespace xhat {
namespace {

constexpr int64_t kMostPlaces = 4;    // coordinates of space, of a quaternion
constexpr size_t kLargestTerm = 400;  // nodes

// Is it asked whether the axis is at some place, or on which side of one?
bool is_told_apart(const Arena& a, Id axis, const std::vector<Id>& nodes) {
  return std::ranges::any_of(nodes, [&](Id id) {
    const Node& n = a[id];
    if (n.op != Op::eq && n.op != Op::ne && n.op != Op::lt && n.op != Op::le) return false;
    return (n.arg(0) == axis && literal(a, n.arg(1))) || (n.arg(1) == axis && literal(a, n.arg(0)));
  });
}

// The sum without this axis; kNone if a condition is left that only some of the terms have.
Id terms_of_sum(Arena& a, const Node& sum, const AxisRange& r) {
  std::vector<AxisRange> others = reduce_axes(sum);
  std::erase(others, r);
  const bool walked =
      std::ranges::any_of(others, [&](const AxisRange& o) { return a[o.begin].depends_on(r.axis) || a[o.end].depends_on(r.axis); });
  if (walked) return kNone;
  Id shared = kNone, value = kNone;
  for (int64_t place = *literal(a, r.begin); place < *literal(a, r.end); ++place) {
    const Replacements at = {{r.axis, a.integer(place)}};
    const Id condition = simplify(a, substitute(a, reduce_condition(sum), at));
    if (is_false(a, condition)) continue;
    if (shared != kNone && condition != shared) return kNone;
    shared = condition;
    const Id term = simplify(a, substitute(a, reduce_body(sum), at));
    if (is_constant(a, term, 0)) continue;
    value = value == kNone ? term : a.add(value, term);
  }
  const Id zero = a.constant(sum.type, 0);
  if (value == kNone) return zero;
  if (!others.empty()) return a.reduce(Op::sum, others, shared, value);
  return is_true(a, shared) ? value : a.select(shared, value, zero);
}

// A sum with one of its axes told apart; itself, if there is none.
Id with_an_axis_less(Arena& a, Id id) {
  const Node n = a[id];
  if (n.op != Op::sum || (n.type != DType::f32 && n.type != DType::f64)) return id;
  const std::vector<Id> nodes = reachable(a, std::vector<Id>{reduce_body(n), reduce_condition(n)});
  if (nodes.size() > kLargestTerm) return id;
  for (const AxisRange& r : reduce_axes(n)) {
    const auto begin = literal(a, r.begin), end = literal(a, r.end);
    if (!begin || !end || *end - *begin > kMostPlaces || !(only_point(a, r) || is_told_apart(a, r.axis, nodes))) continue;
    const Id terms = terms_of_sum(a, n, r);
    if (terms != kNone) return terms;
  }
  return id;
}

// What has one point there, too, is read at the definition's own place: y[i] = x[i] + 1 for f32[1] is seen to overwrite x.
Id aligned(const Program& p, const Definition& d, Id body) {
  Arena& a = *p.arena;
  return rewrite(a, body, [&](Id id) {
    const Node n = a[id];
    if (n.op != Op::read) return id;
    std::vector<Id> indices(n.args().begin(), n.args().end());
    for (size_t k = 0; k < std::min(indices.size(), d.axes.size()); ++k)
      if (literal(a, indices[k]) == 0 && literal(a, p.tensors[n.symbol].shape[k]) == 1 && only_point(a, d.axes[k]) == 0)
        indices[k] = d.axes[k].axis;
    return a.with_args(id, indices);
  });
}

}  // namespace

Program with_few_terms(const Program& given) {
  Program p = given;
  Arena& a = *p.arena;
  for (Definition& d : p.definitions()) {
    if (d.is_call()) return given;
    Replacements points;
    for (const AxisRange& r : d.axes)
      if (const auto at = only_point(a, r)) points[r.axis] = a.integer(*at);
    if (!points.empty()) d.body = aligned(p, d, simplify(a, substitute(a, d.body, points)));
    d.body = rewrite(a, d.body, [&](Id id) { return with_an_axis_less(a, id); });
  }
  return p;
}

}  // namespace xhat
