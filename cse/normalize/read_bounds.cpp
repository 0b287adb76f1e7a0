#include "cse/normalize/read_bounds.h"

#include <algorithm>

#include "cse/normalize/path_conditions.h"
#include "expr/core/conditions.h"
#include "expr/index/affine.h"
#include "expr/index/plain_bounds.h"

namespace xhat {
namespace {

// The parts of a condition that say something of positions.
void add_conjuncts(Arena& a, std::vector<Id>& known, Id condition) {
  for (Id part : conjuncts(a, condition)) {
    if (is_about_positions(a, part) && !is_true(a, part) && std::ranges::find(known, part) == known.end()) known.push_back(part);
  }
}

std::vector<AxisRange> with_bound(const Arena& a, std::vector<AxisRange> axes, Id root) {
  if (!is_reduction(a[root].op)) return axes;
  std::vector<AxisRange> bound = reduce_axes(a[root]);
  axes.insert(axes.end(), bound.begin(), bound.end());
  return axes;
}

}  // namespace

// The sizes that `dim` definitions stand for, down to those that are given.
Id ReadBounds::expanded(Id e) {
  Replacements definitions;
  for (const Dim& d : p_.dims)
    if (d.definition != kNone) definitions[d.dim] = d.definition;
  if (definitions.empty()) return e;
  for (size_t i = 0; i < definitions.size(); ++i) {
    Id next = substitute(a_, e, definitions);
    if (next == e) break;
    e = next;
  }
  return e;
}

ReadBounds::Place ReadBounds::place(Id index, Id extent, const std::vector<AxisRange>& axes,
                                    const std::vector<Id>& conditions) {
  for (const AxisRange& r : axes)
    if (r.axis == index && is_constant(a_, r.begin, 0) && r.end == extent) return Place::inside;
  if (a_[index].op == Op::constant && a_[extent].op == Op::constant)
    return a_[index].integer >= 0 && a_[index].integer < a_[extent].integer ? Place::inside : Place::outside;
  std::vector<Id> key = {index, extent};
  for (const AxisRange& r : axes) key.insert(key.end(), {r.axis, r.begin, r.end});
  key.push_back(kNone);
  key.insert(key.end(), conditions.begin(), conditions.end());
  auto [it, fresh] = asked_.try_emplace(key, Place::inside);
  if (!fresh) return it->second;
  std::vector<AxisRange> ranges = axes;
  for (AxisRange& r : ranges) r = {r.axis, expanded(r.begin), expanded(r.end)};
  std::vector<Id> known;
  for (Id c : conditions) known.push_back(expanded(c));
  for (const Precondition& c : p_.preconditions) known.push_back(expanded(c.condition));
  index = expanded(index);
  extent = expanded(extent);
  if (surely_inside(a_, index, extent, ranges)) return it->second = Place::inside;
  if (known.empty() && surely_outside(a_, index, extent, ranges)) return it->second = Place::outside;
  switch (prove_bounds(a_, {ranges, known, index, extent}).verdict) {
    case BoundsAnswer::Verdict::proved: return it->second = Place::inside;
    case BoundsAnswer::Verdict::precondition:
    case BoundsAnswer::Verdict::violated: return it->second = Place::outside;
    case BoundsAnswer::Verdict::unknown: return it->second = Place::checked;
  }
  throw Bug("prove_bounds: no verdict");
}

std::unordered_map<Id, ReadBounds::Known> ReadBounds::known_at(Id reduction, Id condition) {
  Known outer;
  add_conjuncts(a_, outer, condition);
  auto narrow = [&](Known known, Id c) {
    add_conjuncts(a_, known, c);
    return known;
  };
  auto join = [](Known& known, const Known& other) {
    std::erase_if(known, [&](Id c) { return std::ranges::find(other, c) == other.end(); });
  };
  return known_on_paths(a_, reduction, outer, narrow, join);
}

std::vector<ReadBounds::Place> ReadBounds::places(Id read, const std::vector<AxisRange>& axes, const Known& known) {
  std::vector<Place> found;
  for (size_t i = 0; i < a_[read].arg_count; ++i)
    found.push_back(place(a_[read].arg(i), p_.tensors[a_[read].symbol].shape[i], axes, known));
  return found;
}

bool ReadBounds::any_checked(Id expression, const std::vector<AxisRange>& free) {
  std::vector<AxisRange> axes = with_bound(a_, free, expression);
  for (auto& [id, known] : known_at(expression, a_.boolean(true)))
    if (a_[id].op == Op::read && std::ranges::count(places(id, axes, known), Place::checked)) return true;
  return false;
}

bool ReadBounds::all_inside(Id reduction, const std::vector<AxisRange>& free, Id condition) {
  std::vector<AxisRange> axes = with_bound(a_, free, reduction);
  for (auto& [id, known] : known_at(reduction, condition)) {
    if (a_[id].op != Op::read) continue;
    auto at = places(id, axes, known);
    if (std::ranges::count(at, Place::inside) != std::ssize(at)) return false;
  }
  return true;
}

Id ReadBounds::made_total(Id reduction, const std::vector<AxisRange>& free) {
  std::vector<AxisRange> axes = with_bound(a_, free, reduction);
  auto known = known_at(reduction, a_.boolean(true));
  std::unordered_map<Id, Id> done;
  std::vector<Id> args;
  for (Id id : reachable(a_, reduction)) {
    args.clear();
    for (Id x : a_[id].args()) args.push_back(done.at(x));
    const Node n = a_[id];
    auto at = n.op == Op::read ? places(id, axes, known.at(id)) : std::vector<Place>{};
    if (!std::ranges::count(at, Place::outside)) {
      done[id] = a_.with_args(id, args);
    } else if (!std::ranges::count(at, Place::checked)) {
      done[id] = a_.read_or(n.symbol, n.type, args, a_.constant(n.type, 0));
    } else {
      // The check of the other indices has to stay.
      for (size_t i = 0; i < at.size(); ++i)
        if (at[i] == Place::outside) {
          Id last = a_.sub(p_.tensors[n.symbol].shape[i], a_.integer(1));
          args[i] = a_.binary(Op::maximum, a_.binary(Op::minimum, a_.to(DType::i64, args[i]), last), a_.integer(0));
        }
      done[id] = a_.read(n.symbol, n.type, args);
    }
  }
  return done.at(reduction);
}

bool ReadBounds::is_extent(Id size) {
  for (const Tensor& t : p_.tensors)
    if (std::ranges::find(t.shape, size) != t.shape.end()) return true;
  return place(size, a_.add(size, a_.integer(1)), {}) == Place::inside;
}

}  // namespace xhat
