#include "cse/normalize/orientation.h"

#include <algorithm>
#include <set>

#include "expr/index/linear.h"

namespace xhat {
namespace {

// E-1-index
Id mirrored(Arena& a, Id extent, Id index) { return tidy_index(a, a.sub(a.sub(extent, a.integer(1)), a.to(DType::i64, index))); }

std::optional<Id> turned(Arena& a, Id body, const AxisRange& r);

// A reduction that walks its axis from the end, where the order of its terms is open: sum(d: x[N-1-d]) is sum(d: x[d]), and
// sum(k in 0..d+1: x[d-k]) is sum(k in 0..d+1: x[k]).
Id walked_forward(Arena& a, Id id) {
  const Node n = a[id];
  if (n.op != Op::sum && n.op != Op::max && n.op != Op::min && n.op != Op::any && n.op != Op::all) return id;
  const std::vector<AxisRange> axes = reduce_axes(n);
  Id body = reduce_body(n);
  for (const AxisRange& r : axes) {
    const bool asked =
        a[reduce_condition(n)].depends_on(r.axis) || std::ranges::any_of(axes, [&](const AxisRange& other) {
          return a[other.begin].depends_on(r.axis) ||
                 a[other.end].depends_on(r.axis);
        });
    if (auto other = asked || !is_constant(a, r.begin, 0) ? std::nullopt : turned(a, body, r)) body = *other;
  }
  return body == reduce_body(n) ? id : a.reduce(n.op, axes, reduce_condition(n), body);
}

Id tidied(Arena& a, Id body) {
  return rewrite(a, body, [&](Id id) { return tidy_index(a, id); });
}

// Does it take an axis, or what is made of it, from something?
bool walks_backward(const Arena& a, Id body, Id axis) {
  const std::vector<Id> all = reachable(a, body);
  return std::ranges::any_of(all, [&](Id id) { return a[id].op == Op::sub && is_integer(a[id].type) && a[a[id].arg(1)].depends_on(axis); });
}

// The body for the axis from its other end, if nothing is taken from anything then: x[N-1-n], sum(k in 0..N-n: x[k]).
std::optional<Id> from_other_end(Arena& a, Id body, const AxisRange& r) {
  if (!range_is_plain(a, r) || !walks_backward(a, body, r.axis)) return std::nullopt;
  const Id other = tidied(a, substitute(a, body, {{r.axis, mirrored(a, r.end, r.axis)}}));
  return walks_backward(a, other, r.axis) ? std::nullopt : std::optional(other);
}

// A reduction's body for the axis from its other end, if it needs the mirror image only.
std::optional<Id> turned(Arena& a, Id body, const AxisRange& r) {
  if (!a[body].depends_on(r.axis)) return std::nullopt;
  const Id image = mirrored(a, r.end, r.axis);
  const Id now = a.axis("$turned");  // no name of the language
  const Id rest = rewrite(a, body, [&](Id id) { return id == image ? now : id; });
  if (rest == body || a[rest].depends_on(r.axis)) return std::nullopt;
  return substitute(a, rest, {{now, r.axis}});
}

}  // namespace

Program in_one_direction(const Program& given) {
  Program p = given;
  Arena& a = *p.arena;
  const std::set<TensorId> fixed = [&] {
    std::set<TensorId> all(p.outputs.begin(), p.outputs.end());
    all.insert(p.gradients.begin(), p.gradients.end());
    return all;
  }();
  std::set<std::pair<TensorId, size_t>> turns;  // of these tensors, these dimensions
  for (Definition& d : p.definitions()) {
    if (d.is_call()) return given;
    const Id body = rewrite(a, d.body, [&](Id id) {
      const Node n = a[id];
      if (!is_read(n.op)) return id;
      std::vector<Id> indices(read_indices(n).begin(), read_indices(n).end());
      for (size_t i = 0; i < indices.size(); ++i)
        if (turns.contains({n.symbol, i})) indices[i] = mirrored(a, p.tensors[n.symbol].shape[i], indices[i]);
      return n.op == Op::read ? a.read(n.symbol, n.type, indices) : a.read_or(n.symbol, n.type, indices, n.args().back());
    });
    auto forward = [&](Id from) { return rewrite(a, from, [&](Id id) { return walked_forward(a, id); }); };
    const Id tidy = tidied(a, body), straight = forward(tidy);
    // N-1-(N-1-n) is n.
    bool changed = body != d.body || straight != tidy || reachable(a, tidy).size() < reachable(a, body).size();
    Id best = straight;
    if (!fixed.contains(d.target()))
      for (size_t i = 0; i < d.axes.size(); ++i)
        if (auto other = from_other_end(a, best, d.axes[i])) {
          best = forward(*other);
          turns.insert({d.target(), i});
          changed = true;
        }
    if (changed) d.body = best;
  }
  return p;
}

}  // namespace xhat
