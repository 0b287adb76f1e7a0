#include "expr/imperative/iteration.h"

#include <fmt/format.h>

#include <algorithm>

#include "expr/core/conditions.h"
#include "expr/imperative/image.h"
#include "expr/index/expand_calls.h"

namespace xhat::imperative {

void Iteration::enter() {
  if (!is_straight(l_.body)) throw Dependent{"a loop or branch in it stays"};
  if (reads_data(a_, l_.begin) || reads_data(a_, l_.end)) throw Dependent{"how often it runs depends on data"};
  around_ = c_.loop_ranges();
  range_ = {l_.variable, l_.begin, l_.end};
  for (size_t k = 0; k < l_.carried.size(); ++k) entering_[l_.carried[k].entering] = k;
  for (const Item& item : l_.body) {
    if (const auto* w = std::get_if<Write>(&item.is))
      writes_[w->result] = w;
    else if (const auto* d = std::get_if<Definition>(&item.is)) {
      if (d->is_call())
        expand(*d);
      else
        order_.push_back(d);
    }
  }
  for (const Definition* d : order_) definitions_[d->target()] = d;
  // A write of all elements is a value made anew.
  for (const Item& item : l_.body) {
    const auto* w = std::get_if<Write>(&item.is);
    if (!w || w->guard != kNone || w->axes.empty()) continue;
    if (std::ranges::any_of(w->indices, [&](Id i) { return std::ranges::count(a_[i].free_axes(), l_.variable) > 0; })) continue;
    if (!is_invertible(c_, *w)) continue;
    const Tensor t = c_.program.tensors[w->result];
    Definition d;
    d.targets = {w->result};
    d.axes = c_.element_axes(t.shape);
    d.pos = w->pos;
    std::vector<Id> at;
    for (const AxisRange& r : d.axes) at.push_back(r.axis);
    const Known known = around(d.axes);
    const Id base = a_.read(w->base, t.type, at);
    d.body = value_at(c_, *w, at, known.axes, known.conditions, base);
    const std::vector<TensorId> read = tensors_read(a_, d.body);
    if (std::ranges::find(read, w->base) != read.end()) continue;
    writes_.erase(w->result);
    definitions_[w->result] = &anew_.emplace_back(std::move(d));
  }
}

// A call is no border: it is what it computes.
void Iteration::expand(const Definition& call) {
  auto own_gradient = [](const auto& self, const Program& op) -> bool {
    return states_gradient(op) ||
           std::ranges::any_of(op.forward.definitions, [&](const Definition& d) { return d.is_call() && self(self, *d.callee); });
  };
  if (own_gradient(own_gradient, *call.callee))
    throw Dependent{fmt::format("{} is called in it, whose gradient is stated", call.callee->name)};
  // Axes of the callee that are called like a loop variable get other names.
  std::vector<Id> avoid = {l_.variable};
  for (const AxisRange& r : around_) avoid.push_back(r.axis);
  for (Definition& d : expanded(c_.program, call)) {
    std::vector<Id> used = avoid, roots = {d.body};
    for (const AxisRange& r : d.axes) roots.push_back(r.axis);
    for (Id axis : all_axes(a_, roots)) used.push_back(axis);
    Replacements to;
    for (const AxisRange& r : d.axes)
      if (std::ranges::find(avoid, r.axis) != avoid.end()) used.push_back(to[r.axis] = a_.fresh_axis(r.axis, used));
    for (AxisRange& r : d.axes) r = {substitute(a_, r.axis, to), substitute(a_, r.begin, to), substitute(a_, r.end, to)};
    d.body = substitute(a_, d.body, to, avoid);
    order_.push_back(&expanded_.emplace_back(std::move(d)));
  }
}

std::vector<const Write*> Iteration::chain(const CarriedValue& v) const {
  std::vector<const Write*> found;
  for (TensorId t = v.leaving; writes_.contains(t); t = found.back()->base) found.push_back(writes_.at(t));
  std::ranges::reverse(found);
  return found;
}

bool Iteration::ends_in_entering(const CarriedValue& v) const {
  const std::vector<const Write*> writes = chain(v);
  return (writes.empty() ? v.leaving : writes[0]->base) == v.entering;
}

Iteration::Other Iteration::other(const Write& w, Id variable, const char* mark) {
  Other o;
  Replacements to{{l_.variable, variable}};
  for (const AxisRange& r : w.axes) {
    const Id axis = a_.axis(mark + a_.name(r.axis));
    o.axes.push_back({axis, substitute(a_, r.begin, to), substitute(a_, r.end, to)});
    to[r.axis] = axis;
  }
  for (Id index : w.indices) o.indices.push_back(substitute(a_, index, to));
  if (w.guard != kNone) o.guard = substitute(a_, w.guard, to);
  return o;
}

bool Iteration::disjoint(const CarriedValue& v) {
  if (!ends_in_entering(v)) return true;
  const std::vector<const Write*> writes = chain(v);
  const Id earlier = a_.axis("$earlier");
  for (const Write* x : writes)
    for (const Write* y : writes) {
      const Other p = other(*x, l_.variable, "$x_"), q = other(*y, earlier, "$y_");
      std::vector<AxisRange> axes = around_;
      axes.push_back(range_);
      axes.push_back({earlier, l_.begin, l_.variable});
      axes.insert(axes.end(), p.axes.begin(), p.axes.end());
      axes.insert(axes.end(), q.axes.begin(), q.axes.end());
      std::vector<Id> conditions = c_.state.conditions;
      for (size_t d = 0; d < p.indices.size(); ++d) conditions.push_back(a_.eq(p.indices[d], q.indices[d]));
      for (Id g : {p.guard, q.guard})
        if (g != kNone) conditions.push_back(g);
      if (!c_.never(axes, conditions)) return false;
    }
  return true;
}

Id Iteration::from_before(const Node& read, const Known& known) {
  ++asked_;
  const CarriedValue& v = l_.carried[entering_.at(read.symbol)];
  const std::string why = fmt::format("{} depends on its value in the iteration before", name(v.entering));
  if (!ends_in_entering(v)) throw Dependent{why};
  const Id earlier = a_.axis("$earlier");
  for (const Write* w : chain(v)) {
    const Other q = other(*w, earlier, "$y_");
    std::vector<AxisRange> axes = known.axes;
    axes.push_back({earlier, l_.begin, l_.variable});
    axes.insert(axes.end(), q.axes.begin(), q.axes.end());
    std::vector<Id> conditions = known.conditions;
    for (size_t d = 0; d < q.indices.size(); ++d) conditions.push_back(a_.eq(q.indices[d], read.arg(d)));
    if (q.guard != kNone) conditions.push_back(q.guard);
    if (!c_.never(axes, conditions)) throw Dependent{why};
  }
  std::vector<Id> args(read.args().begin(), read.args().end());
  if (read.op == Op::read) return a_.read(v.initial, read.type, args);
  return a_.read_or(v.initial, read.type, std::span(args).first(args.size() - 1), args.back());
}

bool Iteration::touches(Id x) {
  if (auto it = touches_.find(x); it != touches_.end()) return it->second;
  for (Id id : reachable(a_, x)) {
    if (touches_.contains(id)) continue;
    const Node& n = a_[id];
    touches_[id] = (is_read(n.op) && is_inner(n.symbol)) || std::ranges::any_of(n.args(), [&](Id y) { return touches_.at(y); });
  }
  return touches_.at(x);
}

Id Iteration::resolved(Id x, const Known& known) {
  if (!touches(x)) return x;
  std::vector<Id> axes;
  for (const AxisRange& r : known.axes) axes.push_back(r.axis);
  Resolved memo{{}, anywhere_[axes]};
  return resolved(x, known, memo);
}

Id Iteration::resolved(Id x, const Known& known, Resolved& memo) {
  if (!touches(x)) return x;
  if (auto it = memo.anywhere.find(x); it != memo.anywhere.end()) return it->second;
  if (auto it = memo.here.find(x); it != memo.here.end()) {
    ++asked_;  // the conditions here decided it
    return it->second;
  }
  const size_t asked = asked_;
  const Id made = resolved_node(x, known, memo);
  return (asked_ == asked ? memo.anywhere : memo.here)[x] = made;
}

Id Iteration::resolved_node(Id x, const Known& known, Resolved& memo) {
  const Node n = a_[x];
  if (n.op == Op::select) {
    const Id condition = resolved(n.arg(0), known, memo);
    Known then = known, otherwise = known;
    for (Id part : conjuncts(a_, condition)) then.conditions.push_back(part);
    for (Id part : negated_conjuncts(a_, condition)) otherwise.conditions.push_back(part);
    const Id sides[] = {condition, touches(n.arg(1)) ? resolved(n.arg(1), then) : n.arg(1),
                        touches(n.arg(2)) ? resolved(n.arg(2), otherwise) : n.arg(2)};
    return a_.with_args(x, sides);
  }
  std::vector<Id> args;
  if (is_reduction(n.op)) {
    Known inner = known;
    for (const AxisRange& r : reduce_axes(n)) inner.axes.push_back(r);
    const Id condition = resolved(reduce_condition(n), inner);
    if (!is_true(a_, condition))
      for (Id part : conjuncts(a_, condition)) inner.conditions.push_back(part);
    args.assign(n.args().begin(), n.args().end());
    args[0] = resolved(reduce_body(n), inner);
    args[1] = condition;
    return a_.with_args(x, args);
  }
  for (Id y : n.args()) args.push_back(resolved(y, known, memo));
  if (!is_read(n.op) || !is_inner(n.symbol)) return a_.with_args(x, args);
  return element(a_.with_args(x, args), known);
}

Id Iteration::element(Id x, const Known& known) {
  const Node n = a_[x];
  const TensorId t = n.symbol;
  const std::vector<Id> at(read_indices(n).begin(), read_indices(n).end());
  if (n.op == Op::read_or && !entering_.contains(t)) {
    // Outside it is the other value; inside, what is read.
    Id inside = a_.boolean(true);
    for (size_t d = 0; d < at.size(); ++d)
      for (Id part : {a_.binary(Op::le, a_.integer(0), at[d]), a_.binary(Op::lt, at[d], c_.program.tensors[t].shape[d])})
        inside = is_true(a_, inside) ? part : a_.land(inside, part);
    Known then = known;
    for (Id part : conjuncts(a_, inside)) then.conditions.push_back(part);
    return a_.select(inside, element(a_.read(t, n.type, at), then), n.args().back());
  }
  if (entering_.contains(t)) return from_before(n, known);
  if (auto it = writes_.find(t); it != writes_.end()) {
    const Write& w = *it->second;
    // What was there before is resolved only where it can matter.
    const Id before = a_.read(w.base, n.type, at);
    ++asked_;
    const Id value = value_at(c_, w, at, known.axes, known.conditions, before);
    return value == x ? x : resolved(value, known);
  }
  const Definition& d = *definitions_.at(t);
  Replacements to;
  std::vector<Id> avoid;
  for (size_t k = 0; k < at.size(); ++k) to[d.axes[k].axis] = at[k];
  for (const AxisRange& r : known.axes) avoid.push_back(r.axis);
  if (auto it = lifted_.find(t); it != lifted_.end()) {
    std::vector<Id> indices = at;
    if (it->second.first != kNone) indices.insert(indices.begin(), c_.tidy(a_.sub(l_.variable, it->second.first)));
    return a_.read(it->second.tensor, n.type, indices);
  }
  Id body = substitute(a_, d.body, to, avoid);
  if (c_.padded.contains(t)) {
    ++asked_;
    if (c_.implied(known.axes, known.conditions, a_[body].arg(0))) body = a_[body].arg(1);
  }
  return resolved(body, known);
}

Known Iteration::around(std::span<const AxisRange> axes) const {
  Known known{around_, c_.state.conditions};
  known.axes.push_back(range_);
  known.axes.insert(known.axes.end(), axes.begin(), axes.end());
  return known;
}

Id Iteration::tidied(Id body) {
  return rewrite(a_, body, [&](Id x) {
    const Node n = a_[x];
    if (!is_read(n.op)) return x;
    std::vector<Id> args(n.args().begin(), n.args().end());
    for (size_t d = 0; d < read_indices(n).size(); ++d) args[d] = c_.tidy(args[d]);
    return a_.with_args(x, args);
  });
}

}  // namespace xhat::imperative
