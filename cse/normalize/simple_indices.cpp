#include "cse/normalize/simple_indices.h"

#include <algorithm>
#include <cstdlib>
#include <span>
#include <vector>

#include "expr/core/conditions.h"
#include "expr/index/linear.h"
#include "expr/index/plain_bounds.h"
#include "expr/index/simplify_index.h"

namespace xhat {
namespace {

bool is_inside(const Program& p, const Node& read, std::span<const AxisRange> axes) {
  const auto indices = read_indices(read);
  for (size_t i = 0; i < indices.size(); ++i)
    if (!surely_inside(*p.arena, indices[i], p.tensors[read.symbol].shape[i], axes)) return false;
  return true;
}

// Is it x && y, too, where it is if x then y else false? What reads at more than names is asked from left to right.
bool is_fit_anywhere(const Program& p, Id value, std::span<const AxisRange> axes) {
  const Arena& a = *p.arena;
  return std::ranges::all_of(reachable(a, value), [&](Id id) {
    const Node& n = a[id];
    auto is_name = [&](Id index) { return a[index].op == Op::axis; };
    return !is_reduction(n.op) && (n.op != Op::read || (std::ranges::all_of(read_indices(n), is_name) && is_inside(p, n, axes)));
  });
}

// if x then y else false as x && y, and the three others.
Id without_choice(const Program& p, Id id, std::span<const AxisRange> axes) {
  Arena& a = *p.arena;
  const Node n = a[id];
  if (n.op != Op::select || n.type != DType::boolean) return id;
  const Id condition = n.arg(0);
  for (size_t side : {1u, 2u}) {
    const Id fixed = n.arg(3 - side), open = n.arg(side);
    if (a[fixed].op != Op::constant || !is_fit_anywhere(p, open, axes)) continue;
    const Id chosen = side == 1 ? condition : negation(a, condition);
    return is_false(a, fixed) ? a.land(chosen, open) : a.binary(Op::lor, negation(a, chosen), open);
  }
  return id;
}

// ids[t] - r == 0 as ids[t] == r, where an axis stands once: of the result, if there is one. Of several the outermost.
// Integers wrap, so it is exact.
Id with_axis_alone(Arena& a, Id comparison, std::span<const AxisRange> axes) {
  const Node n = a[comparison];
  if (a[n.arg(0)].type != DType::i64 || tensors_read(a, comparison).empty()) return comparison;
  const auto is_axis = [&](Id x) { return a[x].op == Op::axis; };
  if (is_axis(n.arg(0)) || is_axis(n.arg(1))) return comparison;
  Linear difference = linear(a, n.arg(1));
  add_scaled(difference, linear(a, n.arg(0)), -1);
  for (const AxisRange& r : axes) {
    const auto at = difference.terms.find(r.axis);
    if (at == difference.terms.end() || std::abs(at->second) != 1) continue;
    Linear other = difference;
    other.terms.erase(r.axis);
    if (std::ranges::any_of(other.terms, [&](const auto& term) { return a[term.first].depends_on(r.axis); })) continue;
    Linear place;
    add_scaled(place, other, -at->second);
    return a.binary(n.op, to_index(a, place), r.axis);
  }
  return comparison;
}

bool compares(Op op) { return op == Op::eq || op == Op::ne || op == Op::lt || op == Op::le; }

bool divides(const Arena& a, Id place) { return a[place].arg_count > 0 && fusion::divides(a, place); }
bool has_nested_divisions(const Arena& a, Id place) {
  return std::ranges::any_of(reachable(a, place), [&](Id id) {
    const Node& n = a[id];
    return (n.op == Op::div || n.op == Op::mod) && is_integer(n.type) && fusion::divides(a, n.arg(0));
  });
}

// The node with its first operands simplified, of which this holds.
Id with_simple_places(Arena& a, Id id, size_t places, std::span<const AxisRange> axes, bool (*of)(const Arena&, Id)) {
  const Node n = a[id];
  std::vector<Id> args(n.args().begin(), n.args().end());
  for (Id& place : std::span(args).first(places))
    if (of(a, place)) place = fusion::simplified_index(a, place, axes);
  return a.with_args(id, args);
}

// Of the definition's axes and those of all its reductions.
std::vector<AxisRange> ranges_within(const Arena& a, const Definition& d) {
  std::vector<AxisRange> ranges = d.axes;
  for (Id id : reachable(a, d.body))
    if (is_reduction(a[id].op))
      for (const AxisRange& r : reduce_axes(a[id])) ranges.push_back(r);
  return ranges;
}

// Without axes that have one range here and another there.
std::vector<AxisRange> with_one_range(const std::vector<AxisRange>& all) {
  std::vector<AxisRange> found;
  for (const AxisRange& r : all) {
    const auto other = [&](const AxisRange& x) { return x.axis == r.axis && (x.begin != r.begin || x.end != r.end); };
    const auto same = [&](const AxisRange& x) { return x.axis == r.axis; };
    if (std::ranges::none_of(all, other) && std::ranges::none_of(found, same)) found.push_back(r);
  }
  return found;
}

// Each node of each definition as `rewritten` makes it, which is told the ranges of the axes around it.
template <class Rewritten>
void rewrite_bodies(Program& p, Rewritten rewritten) {
  for (Definition& d : p.definitions()) {
    if (d.is_call()) continue;
    const std::vector<AxisRange> axes = with_one_range(ranges_within(*p.arena, d));
    d.body = rewrite(*p.arena, d.body, [&](Id id) { return rewritten(id, axes); });
  }
}

}  // namespace

Program with_simple_indices(const Program& given) {
  Program p = given;
  rewrite_bodies(p, [&](Id id, std::span<const AxisRange> axes) {
    const Node n = (*p.arena)[id];
    if (!is_read(n.op)) return without_choice(p, id, axes);
    if (n.op == Op::read_or && is_inside(p, n, axes)) return p.arena->read(n.symbol, n.type, read_indices(n));
    return with_simple_places(*p.arena, id, read_indices(n).size(), axes, divides);
  });
  return p;
}

Program without_nested_divisions(const Program& given) {
  Program p = given;
  rewrite_bodies(p, [&](Id id, std::span<const AxisRange> axes) {
    const Node& n = (*p.arena)[id];
    const bool of_places = compares(n.op) && (*p.arena)[n.arg(0)].type == DType::i64;
    const size_t places = is_read(n.op) ? read_indices(n).size() : of_places ? n.arg_count : 0;
    return with_simple_places(*p.arena, id, places, axes, has_nested_divisions);
  });
  return p;
}

Program with_plain_positions(const Program& given) {
  Program p = given;
  Arena& a = *p.arena;
  for (Definition& d : p.definitions()) {
    if (d.is_call()) continue;
    const std::vector<AxisRange> ranges = ranges_within(a, d);
    auto position = [&](Id id) {
      const Node& n = a[id];
      if (n.op != Op::cast || n.type != DType::i32) return false;
      auto same = [&](const AxisRange& r) { return r.axis == n.arg(0); };
      return std::ranges::any_of(ranges, same) &&
             std::ranges::all_of(ranges, [&](const AxisRange& r) { return !same(r) || range_is_plain(a, r); });
    };
    auto wide = [&](Id id) { return position(id) ? a[id].arg(0) : a.to(DType::i64, id); };
    d.body = rewrite(a, d.body, [&](Id id) {
      Node n = a[id];
      const bool tells_apart = n.op == Op::eq || n.op == Op::ne;
      for (size_t side = 0; side < 2 && tells_apart; ++side)
        if (const Node of = a[n.arg(side)]; of.type == DType::i32 && of.op == Op::sub && is_constant(a, n.arg(1 - side), 0)) {
          n = a[a.binary(n.op, of.arg(0), of.arg(1))];  // ids[t] - i32(r) == 0
          break;
        }
      if (tells_apart)
        if (const Id alone = with_axis_alone(a, id, ranges); alone != id) return alone;
      if (!compares(n.op) || a[n.arg(0)].type != DType::i32) return id;
      if (!position(n.arg(0)) && !position(n.arg(1))) return id;
      return a.binary(n.op, wide(n.arg(0)), wide(n.arg(1)));
    });
  }
  return p;
}

}  // namespace xhat
