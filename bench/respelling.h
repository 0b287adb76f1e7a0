// The same op, written otherwise: random steps that hold for real numbers. For bench/spellings.cpp and tests/fuzz.
//
//   operands change places, sums and products are grouped otherwise, a*(b + c) is multiplied out, a/b is a*(1/b), a - b is a + -b,
//   x*x is x^2, sqrt(a) is a^0.5, a sum over two axes is a sum of sums, parts get names (their axes in another order, or one of them
//   from its end), names go.
//
// A step that makes no valid program is left out.
#pragma once
#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "expr/core/program.h"

namespace xhat::bench {

class Respelling {
 public:
  Respelling(const Program& plain, uint64_t seed) : text_(print(plain)), random_(seed) {}

  std::string text(int steps) {
    for (int i = 0; i < steps; ++i) {
      Program p = parse_op(text_);
      step(p);
      try {
        const std::string after = print(p);
        verify(parse_op(after));
        text_ = after;
      } catch (const Error&) {
      }
    }
    return text_;
  }

 private:
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  template <class T>
  const T& one_of(const std::vector<T>& all) {
    return all[below(all.size())];
  }

  void step(Program& p) {
    std::vector<Definition>& all = p.forward.definitions;
    const size_t at = below(all.size());
    if (all[at].is_call()) return;
    switch (below(4)) {
      case 0: return name_part(p, at);
      case 1: return inline_name(p, at);
      default: return rewrite_part(*p.arena, all[at]);
    }
  }

  // One node of the body becomes another expression of the same value.
  void rewrite_part(Arena& a, Definition& d) {
    std::vector<std::pair<Id, Id>> choices;
    for (Id id : reachable(a, d.body))
      for (Id other : alternatives(a, id)) choices.emplace_back(id, other);
    if (choices.empty()) return;
    const auto [from, to] = one_of(choices);
    d.body = rewrite(a, d.body, [&, from = from, to = to](Id id) { return id == from ? to : id; });
  }

  static std::vector<Id> alternatives(Arena& a, Id id) {
    const Node n = a[id];
    std::vector<Id> found;
    if (n.op == Op::sum && is_float(n.type) && is_true(a, reduce_condition(n)) && reduce_axes(n).size() > 1) {
      std::vector<AxisRange> outer = reduce_axes(n), inner = {outer.back()};
      outer.pop_back();
      const Id none = reduce_condition(n);
      const bool independent = std::ranges::all_of(reduce_axes(n), [&](const AxisRange& r) { return range_is_plain(a, r); });
      if (independent) found.push_back(a.reduce(Op::sum, outer, none, a.reduce(Op::sum, inner, none, reduce_body(n))));
      return found;
    }
    if (!is_float(n.type)) return found;
    auto number = [&](double x) { return a.constant(n.type, x); };
    if (n.op == Op::add || n.op == Op::mul) {
      const Node x = a[n.arg(0)], y = a[n.arg(1)];
      found.push_back(a.binary(n.op, n.arg(1), n.arg(0)));
      if (x.op == n.op) found.push_back(a.binary(n.op, x.arg(0), a.binary(n.op, x.arg(1), n.arg(1))));
      if (y.op == n.op) found.push_back(a.binary(n.op, a.binary(n.op, n.arg(0), y.arg(0)), y.arg(1)));
      if (n.op == Op::mul && n.arg(0) == n.arg(1)) found.push_back(a.binary(Op::pow, n.arg(0), number(2)));
      if (n.op == Op::mul && (y.op == Op::add || y.op == Op::sub))
        found.push_back(a.binary(y.op, a.mul(n.arg(0), y.arg(0)), a.mul(n.arg(0), y.arg(1))));
      if (n.op == Op::mul && (x.op == Op::add || x.op == Op::sub))
        found.push_back(a.binary(x.op, a.mul(x.arg(0), n.arg(1)), a.mul(x.arg(1), n.arg(1))));
    }
    if (n.op == Op::sub) found.push_back(a.add(n.arg(0), a.unary(Op::neg, n.arg(1))));
    if (n.op == Op::div) found.push_back(a.mul(n.arg(0), a.div(number(1), n.arg(1))));
    if (n.op == Op::div && a[n.arg(0)].op == Op::mul) {
      const Node product = a[n.arg(0)];
      found.push_back(a.mul(product.arg(0), a.div(product.arg(1), n.arg(1))));
    }
    if (n.op == Op::sqrt) found.push_back(a.binary(Op::pow, n.arg(0), number(0.5)));
    if (n.op == Op::rsqrt) found.push_back(a.div(number(1), a.unary(Op::sqrt, n.arg(0))));
    if (n.op == Op::pow && is_constant(a, n.arg(1), 2)) found.push_back(a.mul(n.arg(0), n.arg(0)));
    return found;
  }

  static std::optional<std::vector<AxisRange>> ranges_of(const Arena& a, const Definition& d, Id part) {
    std::vector<AxisRange> all = d.axes, found;
    for (Id id : reachable(a, d.body))
      if (is_reduction(a[id].op))
        for (const AxisRange& r : reduce_axes(a[id])) all.push_back(r);
    for (Id axis : a[part].free_axes()) {
      auto at = std::ranges::find(all, axis, &AxisRange::axis);
      if (at == all.end() || !range_is_plain(a, *at)) return std::nullopt;
      for (const AxisRange& r : all)
        if (r.axis == axis && !(r == *at)) return std::nullopt;
      found.push_back(*at);
    }
    return found;
  }

  void name_part(Program& p, size_t at) {
    Arena& a = *p.arena;
    Definition& d = p.forward.definitions[at];
    std::vector<Id> parts;
    for (Id id : reachable(a, d.body)) {
      const Node& n = a[id];
      if (is_float(n.type) && n.arg_count > 0 && !is_read(n.op) && n.op != Op::cast && id != d.body) parts.push_back(id);
    }
    if (parts.empty()) return;
    const Id part = one_of(parts);
    auto ranges = ranges_of(a, d, part);
    if (!ranges) return;
    std::ranges::shuffle(*ranges, random_);
    Definition named;
    named.axes = *ranges;
    named.body = part;
    std::vector<Id> shape, indices;
    const size_t turned = below(2) == 0 ? below(ranges->size() + 1) : ranges->size();
    for (size_t i = 0; i < ranges->size(); ++i) {
      const AxisRange& r = (*ranges)[i];
      const Id from_end = a.sub(a.sub(r.end, a.integer(1)), r.axis);
      shape.push_back(r.end);
      indices.push_back(i == turned ? from_end : r.axis);
      if (i == turned) named.body = substitute(a, named.body, {{r.axis, from_end}});
    }
    named.targets = {p.add_tensor("part", a[part].type, shape)};
    const Id read = a.read(named.target(), a[part].type, indices);
    d.body = rewrite(a, d.body, [&](Id id) { return id == part ? read : id; });
    p.forward.definitions.insert(p.forward.definitions.begin() + static_cast<std::ptrdiff_t>(at), named);
  }

  void inline_name(Program& p, size_t at) {
    Arena& a = *p.arena;
    const Definition named = p.forward.definitions[at];
    if (is_reduction(a[named.body].op) || std::ranges::count(p.outputs, named.target())) return;
    for (Definition& d : p.forward.definitions) {
      if (d.is_call()) return;
      std::vector<Id> taken = all_axes(a, std::span<const Id>(&d.body, 1));
      for (const AxisRange& r : d.axes) taken.push_back(r.axis);
      d.body = rewrite(a, d.body, [&](Id id) {
        const Node n = a[id];
        if (n.op != Op::read || n.symbol != named.target()) return id;
        Replacements to;
        for (size_t i = 0; i < n.arg_count; ++i) to[named.axes[i].axis] = a.to(DType::i64, n.arg(i));
        return substitute(a, named.body, to, taken);
      });
    }
    p = without_dead(p);
  }

  std::string text_;
  std::mt19937_64 random_;
};

}  // namespace xhat::bench
