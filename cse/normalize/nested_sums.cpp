#include "cse/normalize/nested_sums.h"

#include <algorithm>
#include <map>

namespace xhat {
namespace {

bool is_sum(const Node& n) { return n.op == Op::sum && (n.type == DType::f32 || n.type == DType::f64); }

Id both(Arena& a, Id x, Id y) { return is_true(a, x) ? y : is_true(a, y) ? x : a.binary(Op::land, x, y); }

// Is the inner sum, at every point of the outer one's, another one? Else it would be computed again and again: y[i] = sum(j in 0..i: r[j]).
bool once_each(const Arena& a, Id outer, Id inner) {
  const Node sum = a[outer], n = a[inner];
  std::vector<Id> axes(sum.free_axes().begin(), sum.free_axes().end());
  for (const AxisRange& r : reduce_axes(sum)) axes.push_back(r.axis);
  return std::ranges::all_of(axes, [&](Id axis) {
    return n.op == Op::read ? std::ranges::count(n.args(), axis) > 0 : std::ranges::binary_search(n.free_axes(), axis);
  });
}

}  // namespace

Program without_nested_sums(const Program& given) {
  Program p = given;
  Arena& a = *p.arena;
  std::map<TensorId, int> reads;  // nodes that read it, in all bodies
  std::map<TensorId, const Definition*> sums;
  for (const Definition& d : p.definitions()) {
    if (d.is_call()) return given;
    for (Id id : reachable(a, d.body))
      if (is_read(a[id].op)) ++reads[a[id].symbol];
  }
  for (TensorId t : p.outputs) reads[t] = 2;
  for (TensorId t : p.gradients) reads[t] = 2;
  bool changed = false;
  for (Definition& d : p.definitions()) {
    std::vector<Id> taken = all_axes(a, std::span<const Id>(&d.body, 1));
    for (const AxisRange& r : d.axes) taken.push_back(r.axis);
    d.body = rewrite(a, d.body, [&](Id id) {
      const Node outer = a[id];
      if (!is_sum(outer)) return id;
      Id inner = reduce_body(outer);
      if (!once_each(a, id, inner)) return id;
      if (const Node read = a[inner]; read.op == Op::read && reads[read.symbol] == 1 && sums.contains(read.symbol)) {
        const Definition& named = *sums.at(read.symbol);
        Replacements at;
        for (size_t i = 0; i < read.arg_count; ++i) at[named.axes[i].axis] = a.to(DType::i64, read.arg(i));
        inner = substitute(a, named.body, at, taken);
      }
      const Node sum = a[inner];
      if (!is_sum(sum) || sum.type != outer.type) return id;
      std::vector<AxisRange> axes = reduce_axes(outer), more = reduce_axes(sum);
      for (const AxisRange& r : more)
        if (std::ranges::find(axes, r.axis, &AxisRange::axis) != axes.end()) return id;
      axes.insert(axes.end(), more.begin(), more.end());
      changed = true;
      return a.reduce(Op::sum, axes, both(a, reduce_condition(outer), reduce_condition(sum)), reduce_body(sum));
    });
    if (is_sum(a[d.body])) sums[d.target()] = &d;
  }
  return changed ? without_dead(p) : p;
}

}  // namespace xhat
