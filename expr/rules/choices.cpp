// with_decided_choices (simplify.h): where it is known between which numbers a value lies, choices by other numbers are made, and extremes with
// them are one of the two.
#include <algorithm>
#include <functional>
#include <limits>
#include <optional>

#include "expr/core/conditions.h"
#include "expr/core/scalar.h"
#include "expr/rules/simplify.h"

namespace xhat {
namespace {

constexpr size_t kLargest = 64;  // nodes of a branch that is looked into

// A comparison of a float value with a number.
struct Comparison {
  Id value;
  Op op;       // lt, le, eq
  bool below;  // value op number, or else number op value
  double number;
};

std::optional<Comparison> comparison(const Arena& a, Id condition) {
  const Node& n = a[condition];
  if ((n.op != Op::lt && n.op != Op::le && n.op != Op::eq) || !is_float(a[n.arg(0)].type)) return std::nullopt;
  for (size_t side : {0u, 1u}) {
    const Node& number = a[n.arg(1 - side)];
    if (number.op == Op::constant && a[n.arg(side)].op != Op::constant)
      return Comparison{n.arg(side), n.op, side == 0, round_to(number.type, number.value)};
  }
  return std::nullopt;
}

// What a value may be, if it is no NaN; and whether it may be one.
struct Range {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool without_low = false, without_high = false, nan = true;

  void hold(const Comparison& c) {
    nan = false;
    const bool strict = c.op == Op::lt;
    if (c.op == Op::eq || c.below) at_most(c.number, strict);
    if (c.op == Op::eq || !c.below) at_least(c.number, strict);
  }
  void fail(const Comparison& c) {
    if (c.op == Op::eq) return;
    const bool strict = c.op == Op::le;
    c.below ? at_least(c.number, strict) : at_most(c.number, strict);
  }
  // Of a NaN all comparisons fail.
  std::optional<bool> decides(const Comparison& c) const {
    Range yes = *this, no = *this;
    yes.hold(c);
    if (yes.empty()) return false;
    no.fail(c);
    const bool only_number = c.op == Op::eq && low == high && low == c.number;
    if (!nan && (only_number || (c.op != Op::eq && no.empty()))) return true;
    return std::nullopt;
  }

  // All of it, on one side of a number, without it.
  bool is_above(double x) const { return !nan && (low > x || (low == x && without_low)); }
  bool is_below(double x) const { return !nan && (high < x || (high == x && without_high)); }

 private:
  void at_most(double x, bool strict) {
    if (x < high || (x == high && strict)) high = x, without_high = strict;
  }
  void at_least(double x, bool strict) {
    if (x > low || (x == low && strict)) low = x, without_low = strict;
  }
  bool empty() const { return low > high || (low == high && (without_low || without_high)); }
};

// Chosen between values: by a condition, or as the larger or smaller one.
bool chooses(Op op) { return op == Op::select || op == Op::relu || op == Op::maximum || op == Op::minimum || op == Op::clamp || op == Op::abs; }

// The operand that relu, max, min, clamp or abs comes to where the range of one operand is known; kNone if that is not told.
Id decided_extreme(const Arena& a, const Node& n, const std::function<Range(Id)>& range_of) {
  if (n.op == Op::relu || n.op == Op::abs) return range_of(n.arg(0)).is_above(0) ? n.arg(0) : kNone;
  auto number = [&](size_t i) -> std::optional<double> {
    const Node& x = a[n.arg(i)];
    return x.op == Op::constant ? std::optional(round_to(x.type, x.value)) : std::nullopt;
  };
  if (n.op == Op::clamp) {
    const auto low = number(1), high = number(2);
    if (!low || !high) return kNone;
    const Range range = range_of(n.arg(0));
    return range.is_above(*low) && range.is_below(*high) ? n.arg(0) : range.is_below(*low) ? n.arg(1) : range.is_above(*high) ? n.arg(2) : kNone;
  }
  for (size_t i : {0u, 1u})
    if (const auto k = number(1 - i)) {
      const Range range = range_of(n.arg(i));
      const bool above = range.is_above(*k);
      if (above || range.is_below(*k)) return n.arg(above == (n.op == Op::maximum) ? i : 1 - i);
    }
  return kNone;
}

// The body of a choice or of a reduction with what its condition decides. holds: what is known is that the condition holds, else that it fails.
Id decided(Arena& a, Id condition, Id body, bool holds, Decisions by) {
  const std::vector<Id> ids = reachable(a, body);
  if (ids.size() > kLargest || std::ranges::none_of(ids, [&](Id id) { return chooses(a[id].op); })) return body;
  const std::vector<Id> all = holds ? conjuncts(a, condition) : std::vector<Id>{condition};
  std::vector<Comparison> known;
  for (Id c : all)
    if (auto found = comparison(a, c)) known.push_back(*found);
  auto range_of = [&](Id value) {
    Range range;
    for (const Comparison& c : known)
      if (c.value == value) holds ? range.hold(c) : range.fail(c);
    return range;
  };
  auto answer = [&](Id asked) -> std::optional<bool> {
    if (by == Decisions::all && std::ranges::count(all, asked)) return holds;
    if (by == Decisions::all && std::ranges::count(all, negation(a, asked))) return !holds;
    const auto compared = comparison(a, asked);
    return compared ? range_of(compared->value).decides(*compared) : std::nullopt;
  };
  return rewrite(a, body, [&](Id id) {
    const Node inner = a[id];
    if (!chooses(inner.op) || !is_float(inner.type)) return id;
    if (inner.op != Op::select) {
      const Id one = decided_extreme(a, inner, range_of);
      return one == kNone ? id : one;
    }
    const auto known_to = answer(inner.arg(0));
    return known_to ? inner.arg(*known_to ? 1 : 2) : id;
  });
}

// A comparison of an axis with an end of its range.
std::optional<bool> decided_by_range(const Arena& a, const Node& n, const std::vector<AxisRange>& axes) {
  if (n.op != Op::lt && n.op != Op::le) return std::nullopt;
  for (const AxisRange& r : axes) {
    if (n.arg(0) == r.axis && n.arg(1) == r.end) return true;
    if (n.arg(0) == r.axis && n.arg(1) == r.begin && n.op == Op::lt) return false;
    if (n.arg(1) == r.axis && n.arg(0) == r.begin && n.op == Op::le) return true;
    if (n.arg(1) == r.axis && n.arg(0) == r.end) return false;
    const Node& bound = a[n.arg(1)];
    if (n.arg(0) == r.axis && bound.op == Op::add && bound.arg(0) == r.end && is_constant(a, bound.arg(1), 1)) return true;
  }
  return std::nullopt;
}

}  // namespace

Program with_decided_choices(const Program& given, Decisions by) {
  Program p = given;
  Arena& a = *p.arena;
  for (Definition& d : p.definitions()) {
    if (d.is_call()) continue;
    std::vector<AxisRange> axes = d.axes;
    if (const Node root = a[d.body]; is_reduction(root.op))
      for (const AxisRange& r : reduce_axes(root)) axes.push_back(r);
    d.body = rewrite(a, d.body, [&](Id id) {
      const Node n = a[id];
      if (const auto known = by == Decisions::all ? decided_by_range(a, n, axes) : std::nullopt) return a.boolean(*known);
      if (is_reduction(n.op)) {
        const Id body = decided(a, reduce_condition(n), reduce_body(n), true, by);
        return body == reduce_body(n) ? id : a.reduce(n.op, reduce_axes(n), reduce_condition(n), body);
      }
      if (n.op != Op::select) return id;
      const Id yes = decided(a, n.arg(0), n.arg(1), true, by), no = decided(a, n.arg(0), n.arg(2), false, by);
      return yes == n.arg(1) && no == n.arg(2) ? id : a.select(n.arg(0), yes, no);
    });
  }
  return p;
}

}  // namespace xhat
