#include "expr/imperative/image.h"

#include <fmt/format.h>

#include <algorithm>

#include "expr/core/conditions.h"
#include "expr/index/affine.h"
#include "expr/index/linear.h"

namespace xhat::imperative {

namespace {

struct Equation {
  Id index, target, extent;
};

// X / C == t and X % C == u  =>  X == C*t + u, if 0 <= u < C. X may itself be a quotient: w / (C*D) is (w / D) / C.
bool join_radix(Context& c, std::vector<Equation>& equations, std::vector<Id>& conditions) {
  Arena& a = c.arena();
  for (size_t r = 0; r < equations.size(); ++r) {
    const Node rest = a[equations[r].index];
    if (rest.op != Op::mod || a[rest.arg(1)].op == Op::axis) continue;
    const Id divisor = rest.arg(1);
    for (size_t q = 0; q < equations.size(); ++q) {
      const Node quotient = a[equations[q].index];
      if (q == r || quotient.op != Op::div) continue;
      bool fits = quotient.arg(0) == rest.arg(0) && c.scope.same_extent(quotient.arg(1), divisor);
      const Node inner = a[rest.arg(0)];
      if (!fits && inner.op == Op::div && inner.arg(0) == quotient.arg(0))
        fits = c.scope.same_extent(quotient.arg(1), c.tidy(a.mul(inner.arg(1), divisor)));
      if (!fits) continue;
      const Id u = equations[r].target;
      for (Id part : {a.binary(Op::le, a.integer(0), u), a.binary(Op::lt, u, divisor)}) conditions.push_back(part);
      equations[q] = {rest.arg(0), c.tidy(a.add(a.mul(divisor, equations[q].target), u)), equations[q].extent};
      equations.erase(equations.begin() + static_cast<std::ptrdiff_t>(r));
      return true;
    }
  }
  return false;
}

}  // namespace

Id all_hold(Context& c, std::span<const Id> conditions, Id guard) {
  Arena& a = c.arena();
  Id all = kNone;
  for (Id part : conditions)
    if (!reads_data(a, part)) all = all == kNone ? part : a.land(all, part);
  auto also = [&](Id part) { all = all == kNone ? part : a.select(all, part, a.boolean(false)); };
  if (guard != kNone) also(guard);
  for (Id part : conditions)
    if (reads_data(a, part)) also(part);
  return all;
}

std::optional<Solution> solve(Context& c, std::span<const AxisRange> unknowns, std::span<const Id> indices, std::span<const Id> targets,
                              const Shape& shape) {
  Arena& a = c.arena();
  Solution s;
  std::vector<Equation> equations;
  for (size_t d = 0; d < indices.size(); ++d) equations.push_back({indices[d], targets[d], shape[d]});
  while (join_radix(c, equations, s.conditions)) {
  }
  std::vector<AxisRange> open(unknowns.begin(), unknowns.end());
  auto is_open = [&](Id x) { return std::ranges::any_of(open, [&](const AxisRange& r) { return r.axis == x; }); };
  auto opens_in = [&](Id x) { return std::ranges::any_of(a[x].free_axes(), is_open); };
  for (bool more = true; more;) {
    more = false;
    for (size_t e = 0; e < equations.size() && !more; ++e) {
      const Linear l = linear(a, equations[e].index);
      Id unknown = kNone;
      bool linear_in_one = true;
      for (auto [node, k] : l.terms) {
        if (!opens_in(node)) continue;
        if (!is_open(node) || unknown != kNone) linear_in_one = false;
        unknown = node;
      }
      if (unknown == kNone || !linear_in_one) continue;
      Linear rest = l;
      const int64_t k = rest.terms.at(unknown);
      rest.terms.erase(unknown);
      Id value = c.tidy(a.sub(equations[e].target, to_index(a, rest)));
      if (k < 0) value = c.tidy(a.unary(Op::neg, value));
      const int64_t size = k < 0 ? -k : k;
      if (size != 1) {
        s.conditions.push_back(a.eq(a.binary(Op::mod, value, a.integer(size)), a.integer(0)));
        value = a.div(value, a.integer(size));
      }
      s.values[unknown] = value;
      equations.erase(equations.begin() + static_cast<std::ptrdiff_t>(e));
      for (Equation& other : equations) other.index = c.tidy(substitute(a, other.index, {{unknown, value}}));
      std::erase_if(open, [&](const AxisRange& r) { return r.axis == unknown; });
      more = true;
    }
  }
  for (const Equation& e : equations) {
    if (opens_in(e.index)) return std::nullopt;
    if (e.index != e.target) s.conditions.push_back(a.eq(e.target, reads_data(a, e.index) ? c.looked_up(e.index, e.extent) : e.index));
  }
  // An extent of 1 leaves no choice.
  for (size_t i = open.size(); i-- > 0;)
    if (is_constant(a, c.tidy(a.sub(open[i].end, open[i].begin)), 1)) {
      s.values[open[i].axis] = open[i].begin;
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
    }
  for (const AxisRange& r : unknowns) {
    auto it = s.values.find(r.axis);
    if (it == s.values.end()) continue;
    s.conditions.push_back(a.binary(Op::le, substitute(a, r.begin, s.values), it->second));
    s.conditions.push_back(a.binary(Op::lt, it->second, substitute(a, r.end, s.values)));
  }
  s.open = std::move(open);
  return s;
}

namespace {

struct Inverse {
  Replacements apart;  // the write's axes, under names that no element has
  std::optional<Solution> solution;
};

// Quotients and remainders that are mixed with sums (slices of reshaped views) are solved by isl.
std::optional<Solution> by_inversion(Context& c, std::span<const AxisRange> unknowns, std::span<const Id> indices,
                                     std::span<const Id> element, const Shape& shape) {
  Arena& a = c.arena();
  std::vector<AxisRange> bound, targets;
  std::vector<Id> expanded;
  for (const AxisRange& r : unknowns) bound.push_back({r.axis, c.scope.expanded(r.begin), c.scope.expanded(r.end)});
  for (Id index : indices) {
    if (reads_data(a, index)) return std::nullopt;
    expanded.push_back(c.scope.expanded(index));
  }
  Replacements to;
  for (size_t d = 0; d < shape.size(); ++d) {
    targets.push_back({a.axis("$element" + std::to_string(d)), a.integer(0), c.scope.expanded(shape[d])});
    to[targets.back().axis] = element[d];
  }
  const std::optional<InvertAnswer> answer = invert(a, {bound, kNone, expanded, targets, {}});
  if (!answer || !answer->remaining.empty()) return std::nullopt;
  Solution s;
  for (auto [axis, value] : answer->solved) s.values[axis] = substitute(a, value, to);
  if (answer->guard != kNone)
    for (Id part : conjuncts(a, answer->guard)) s.conditions.push_back(substitute(a, part, to));
  for (const AxisRange& r : unknowns)
    if (!s.values.contains(r.axis)) return std::nullopt;
  return s;
}

Inverse inverse(Context& c, const Write& w, std::span<const Id> element) {
  Arena& a = c.arena();
  Inverse i;
  std::vector<AxisRange> unknowns;
  for (const AxisRange& r : w.axes) {
    const Id axis = a.axis("$" + a.name(r.axis));
    unknowns.push_back({axis, substitute(a, r.begin, i.apart), substitute(a, r.end, i.apart)});
    i.apart[r.axis] = axis;
  }
  std::vector<Id> indices;
  for (Id index : w.indices) indices.push_back(substitute(a, index, i.apart));
  i.solution = solve(c, unknowns, indices, element, c.program.tensors[w.result].shape);
  if (i.solution && !i.solution->open.empty()) i.solution.reset();
  if (!i.solution) i.solution = by_inversion(c, unknowns, indices, element, c.program.tensors[w.result].shape);
  return i;
}

}  // namespace

bool is_invertible(Context& c, const Write& w) {
  std::vector<Id> element;
  for (const AxisRange& r : c.element_axes(c.program.tensors[w.result].shape)) element.push_back(r.axis);
  return inverse(c, w, element).solution.has_value();
}

Id value_at(Context& c, const Write& w, std::span<const Id> element, std::span<const AxisRange> around, std::span<const Id> known,
            Id base) {
  Arena& a = c.arena();
  const auto [apart, s] = inverse(c, w, element);
  if (!s) throw Error("not yet: a write through this view; its elements cannot be told from their places", w.pos);
  std::vector<Id> conditions, all(known.begin(), known.end());
  for (Id condition : s->conditions) {
    if (c.implied(around, all, condition)) continue;
    if (c.excluded(around, all, condition)) return base;
    conditions.push_back(condition);
    all.push_back(condition);
  }
  Id guard = kNone;
  if (w.guard != kNone && !c.implied(around, all, w.guard)) {
    if (c.excluded(around, all, w.guard)) return base;
    guard = w.guard;
  }
  Replacements to;
  for (const AxisRange& r : w.axes) to[r.axis] = s->values.at(apart.at(r.axis));
  std::vector<Id> avoid;
  for (const AxisRange& r : around) avoid.push_back(r.axis);
  const Id body = substitute(a, w.body, to, avoid);
  const Id condition = all_hold(c, conditions, guard);
  if (condition == kNone) return body;
  return a.select(condition, body, base);
}

Definition select_form(Context& c, const Write& w) {
  Arena& a = c.arena();
  const Tensor& t = c.program.tensors[w.result];
  Definition d;
  d.targets = {w.result};
  d.axes = c.element_axes(t.shape);
  d.pos = w.pos;
  std::vector<Id> element;
  for (const AxisRange& r : d.axes) element.push_back(r.axis);
  std::vector<AxisRange> around = c.loop_ranges();
  around.insert(around.end(), d.axes.begin(), d.axes.end());
  d.body = value_at(c, w, element, around, {}, a.read(w.base, t.type, element));
  return d;
}

}  // namespace xhat::imperative
