#include "ad/common/body.h"

#include <algorithm>

#include "expr/core/distinct_axes.h"

namespace xhat {
namespace {

bool is_active_node(Differentiation& d, const Node& n, const std::unordered_set<Id>& active) {
  if (!is_float(n.type)) return false;
  auto on = [&](size_t i) { return active.contains(n.arg(i)); };
  if (is_read(n.op)) return d.is_active(n.symbol) || (n.op == Op::read_or && on(n.arg_count - 1));
  if (n.op == Op::select) return on(1) || on(2);
  if (n.op == Op::cast || is_reduction(n.op)) return on(0);
  for (size_t i = 0; i < n.arg_count; ++i)
    if (on(i) && !partial_is_zero(n.op, i)) return true;
  return false;
}

std::unordered_set<Id> active_nodes(Differentiation& d, Id root) {
  std::unordered_set<Id> active;
  for (Id id : reachable(d.arena(), root))
    if (is_active_node(d, d.arena()[id], active)) active.insert(id);
  return active;
}

constexpr int64_t kFewFactors = 16;  // pairs of them are fewer operations than two running products, and one definition instead of two

bool is_short_product(const Arena& a, const std::vector<AxisRange>& axes) {
  int64_t factors = 1;
  for (const AxisRange& r : axes) {
    if (a[r.begin].op != Op::constant || a[r.end].op != Op::constant) return false;
    factors *= std::clamp<int64_t>(a[r.end].integer - a[r.begin].integer, 0, kFewFactors + 1);
    if (factors > kFewFactors) return false;
  }
  return true;
}

}  // namespace

bool is_active(Differentiation& d, const Definition& definition) {
  return active_nodes(d, definition.body).contains(definition.body);
}

Body::Body(Differentiation& d, const Definition& definition)
    : d_(d), a_(d.arena()), definition_(definition), name_(d.program.tensor(definition.target()).name) {
  DistinctAxes distinct = with_distinct_axes(a_, definition.axes, definition.body);
  root_ = distinct.body;
  scope.ranges = distinct.ranges;
  used = distinct.names;
  active_ = active_nodes(d_, root_);
}

std::vector<Id> Body::own_axes() const {
  std::vector<Id> axes;
  for (const AxisRange& r : definition_.axes) axes.push_back(r.axis);
  return axes;
}

// ---- axes ----

Id Body::fresh(Id base) {
  Id axis = a_.fresh_axis(base, used);
  used.push_back(axis);
  return axis;
}

Id Body::clear_of(Id value, std::span<const Id> axes) {
  std::vector<Id> ids = reachable(a_, value);
  std::map<Id, Id> map;
  for (Id id : ids)
    if (is_reduction(a_[id].op))
      for (const AxisRange& r : reduce_axes(a_[id]))
        if (contains(axes, r.axis) && !map.contains(r.axis)) map[r.axis] = kNone;
  if (map.empty()) return value;
  // What is bound in value is not free in it, so renaming needs no care for which is which. Names given before are
  // taken again, so that equal values stay equal.
  for (auto& [from, to] : map) {
    std::vector<Id>& names = other_names_[from];
    auto unused = std::ranges::find_if(names, [&](Id x) { return !std::ranges::binary_search(ids, x); });
    if (unused == names.end()) unused = names.insert(names.end(), fresh(from));
    to = *unused;
  }
  return rewrite(a_, value, [&](Id id) { return map.contains(id) ? map.at(id) : id; });
}

bool Body::rectangular(std::span<const Id> axes) const {
  return std::ranges::all_of(axes, [&](Id x) {
    const AxisRange* r = scope.find(x);
    return r && is_constant(a_, r->begin, 0) && a_[r->end].axes_count == 0;
  });
}

// ---- forward values ----

Id Body::value_of(Id node, std::span<const Id> axes) {
  if (node != root_ || !same_set(axes, own_axes())) return node;
  return a_.read(definition_.target(), d_.program.tensor(definition_.target()).type, own_axes());
}

Id Body::as_tensor(const std::string& name, std::span<const Id> axes, Id value) {
  std::vector<AxisRange> ranges = scope.ranges_of(axes);
  for (const auto* list : {&d_.program.forward.definitions, &d_.derived})
    for (const Definition& d : *list)
      if (d.body == value && d.axes == ranges) return a_.read(d.target(), a_[value].type, axes);
  TensorId t = d_.define(name, a_[value].type, ranges, value);
  return a_.read(t, a_[value].type, axes);
}

Body::Extreme Body::extreme_of(Id reduction, const Literals& shields, bool named) {
  auto key = std::pair(reduction, conjunction(a_, shields));
  if (auto at = extremes_.find(key); at != extremes_.end()) return at->second;
  const Node& n = a_[reduction];
  std::vector<Id> axes = scope.closure(a_, n.free_axes());
  std::string name = name_ + "_" + std::string(info(n.op).text);
  Id value = value_of(reduction, axes);
  bool box = named && rectangular(axes) && std::ranges::all_of(shields, [&](Id x) {
               return std::ranges::all_of(a_[x].free_axes(), [&](Id axis) { return contains(axes, axis); });
             });
  if (value == reduction && box) value = as_tensor(name, axes, guarded(a_, shields, reduction));
  std::vector<AxisRange> ranges = reduce_axes(n);
  std::vector<Id> bound;
  for (const AxisRange& r : ranges) bound.push_back(r.axis);
  Literals attained;
  add_literals(a_, attained, reduce_condition(n));
  add_literals(a_, attained, a_.eq(reduce_body(n), clear_of(value, bound)));
  Id ties = a_.reduce(Op::sum, ranges, conjunction(a_, attained), a_.constant(n.type, 1));
  if (box) ties = as_tensor(name_ + "_ties", axes, guarded(a_, shields, ties));
  return extremes_[key] = {value, ties};
}

bool Body::inside_anywhere(Id node) {
  std::vector<Id> axes = all_axes(a_, std::span(&node, 1));
  return reads_inside(a_, d_.program, node, scope.ranges_of(scope.closure(a_, axes)), {});
}

Id Body::product_of_others(const Node& n) {
  std::vector<AxisRange> axes = reduce_axes(n);
  if (is_short_product(a_, axes)) return product_but_one(n);
  Id others = kNone;
  for (size_t at = 0; at < axes.size(); ++at)
    for (bool before : {true, false}) {
      const Id product = product_beside(n, axes, at, before);
      others = others == kNone ? product : a_.mul(others, product);
    }
  return others;
}

// Of those that have the first `at` axes of this one: before it along the axis `at`, or behind it. Products of products, so that each is
// over one axis.
Id Body::product_beside(const Node& n, const std::vector<AxisRange>& axes, size_t at, bool before) {
  Replacements map;
  std::vector<AxisRange> inner;
  for (size_t i = at; i < axes.size(); ++i) {
    const Id axis = fresh(axes[i].axis);
    inner.push_back({axis, substitute(a_, axes[i].begin, map), substitute(a_, axes[i].end, map)});
    map[axes[i].axis] = axis;
  }
  if (before)
    inner[0].end = axes[at].axis;
  else
    inner[0].begin = a_.add(axes[at].axis, a_.integer(1));
  Id product = substitute(a_, reduce_body(n), map), condition = substitute(a_, reduce_condition(n), map);
  for (size_t i = inner.size(); i-- > 0; condition = kNone) product = a_.reduce(Op::prod, std::span(&inner[i], 1), condition, product);
  return product;
}

Id Body::product_but_one(const Node& n) {
  Replacements map;
  std::vector<AxisRange> axes = reduce_axes(n);
  std::vector<Id> equal;
  for (AxisRange& r : axes) {
    Id axis = fresh(r.axis);
    equal.push_back(a_.eq(axis, r.axis));
    AxisRange copy{axis, substitute(a_, r.begin, map), substitute(a_, r.end, map)};
    map[r.axis] = axis;
    r = copy;
  }
  Literals others;
  add_literals(a_, others, substitute(a_, reduce_condition(n), map));
  add_literals(a_, others, negation(a_, conjunction(a_, equal)));
  return a_.reduce(Op::prod, axes, conjunction(a_, others), substitute(a_, reduce_body(n), map));
}

}  // namespace xhat
