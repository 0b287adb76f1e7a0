// with_decided_choices (simplify.h): where it is known between which numbers a value lies, choices by other numbers are made.
#include <algorithm>
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

 private:
  void at_most(double x, bool strict) {
    if (x < high || (x == high && strict)) high = x, without_high = strict;
  }
  void at_least(double x, bool strict) {
    if (x > low || (x == low && strict)) low = x, without_low = strict;
  }
  bool empty() const { return low > high || (low == high && (without_low || without_high)); }
};

// The branch of `choice` with what its condition decides.
Id decided(Arena& a, Id choice, size_t branch) {
  const Node n = a[choice];
  const Id body = n.arg(branch);
  const std::vector<Id> ids = reachable(a, body);
  if (ids.size() > kLargest || std::ranges::none_of(ids, [&](Id id) { return a[id].op == Op::select; })) return body;
  std::vector<Comparison> known;
  for (Id c : branch == 1 ? conjuncts(a, n.arg(0)) : std::vector<Id>{n.arg(0)})
    if (auto found = comparison(a, c)) known.push_back(*found);
  if (known.empty()) return body;
  auto answer = [&](Id condition) -> std::optional<bool> {
    const auto asked = comparison(a, condition);
    if (!asked) return std::nullopt;
    Range range;
    for (const Comparison& c : known)
      if (c.value == asked->value) branch == 1 ? range.hold(c) : range.fail(c);
    return range.decides(*asked);
  };
  return rewrite(a, body, [&](Id id) {
    const Node inner = a[id];
    const auto known_to = inner.op == Op::select ? answer(inner.arg(0)) : std::nullopt;
    return known_to ? inner.arg(*known_to ? 1 : 2) : id;
  });
}

}  // namespace

Program with_decided_choices(const Program& given) {
  Program p = given;
  Arena& a = *p.arena;
  for (Definition& d : p.definitions()) {
    if (d.is_call()) continue;
    d.body = rewrite(a, d.body, [&](Id id) {
      const Node n = a[id];
      if (n.op != Op::select) return id;
      const Id yes = decided(a, id, 1), no = decided(a, id, 2);
      return yes == n.arg(1) && no == n.arg(2) ? id : a.select(n.arg(0), yes, no);
    });
  }
  return p;
}

}  // namespace xhat
