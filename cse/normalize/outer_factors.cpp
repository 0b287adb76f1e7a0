#include "cse/normalize/outer_factors.h"

#include <algorithm>

#include "cse/match/bodies.h"
#include "expr/rules/parts.h"

namespace xhat {
namespace {

// Of axes with these ranges, dims and literals alone, and above 0 (or not below) wherever they are?
bool is_above_zero(Arena& a, Id id, const std::vector<AxisRange>& axes, bool or_zero = false) {
  const Node n = a[id];
  auto above = [&](size_t i, bool zero) { return is_above_zero(a, n.arg(i), axes, zero); };
  if (n.op == Op::constant) return is_float(n.type) && (or_zero ? n.value >= 0 : n.value > 0);
  if (n.op == Op::add) return is_float(n.type) && ((above(0, or_zero) && above(1, true)) || (above(0, true) && above(1, or_zero)));
  if (n.op == Op::mul) return is_float(n.type) && above(0, or_zero) && above(1, or_zero);
  if (n.op != Op::cast || !is_integer(a[n.arg(0)].type)) return false;
  const std::vector<Id> all = reachable(a, n.arg(0));
  if (std::ranges::any_of(all, [&](Id x) { return is_read(a[x].op) || is_reduction(a[x].op); })) return false;
  const Id whole = a.to(DType::i64, n.arg(0));
  return or_zero ? in_bounds(a, whole, a.add(whole, a.integer(1)), axes) : in_bounds(a, a.sub(whole, a.integer(1)), whole, axes);
}

// The sum with such factors in front of it; itself if there are none.
Id with_numbers_in_front(Arena& a, Id id, const std::vector<AxisRange>& axes) {
  const Node n = a[id];
  if (n.op != Op::sum || (n.type != DType::f32 && n.type != DType::f64)) return id;
  const std::vector<AxisRange> bound = reduce_axes(n);
  auto runs = [&](const AxisRange& r) { return a[r.begin].axes_count + a[r.end].axes_count > 0; };
  if (std::ranges::none_of(bound, runs)) return id;
  const Parts whole = factors_of(a, reduce_body(n));
  if (!whole.all) return id;
  Parts inside{{}, whole.number}, outside{{}, 1};
  for (const Parts::Part& part : whole.parts) {
    const bool moves = a[part.value].axes_count > 0 && !depends_on_any(a, part.value, bound) && is_above_zero(a, part.value, axes);
    (moves ? outside : inside).parts.push_back(part);
  }
  if (outside.parts.empty() || inside.parts.empty()) return id;
  Id value = a.reduce(Op::sum, bound, reduce_condition(n), product_of(a, inside, n.type));
  for (const Parts::Part& part : outside.parts) value = part.inverse ? a.div(value, part.value) : a.mul(value, part.value);
  return value;
}

}  // namespace

Program with_numbers_outside(const Program& given) {
  Program p = given;
  Arena& a = *p.arena;
  for (Definition& d : p.definitions()) {
    if (d.is_call()) return given;
    d.body = rewrite(a, d.body, [&](Id id) { return with_numbers_in_front(a, id, d.axes); });
  }
  return p;
}

}  // namespace xhat
