#include "ad/sweep.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "ad/contribution.h"
#include "expr/affine.h"

namespace xhat {
namespace {

bool contains_reduction(const Arena& a, Id root) {
  return std::ranges::any_of(reachable(a, root), [&](Id id) { return is_reduction(a[id].op); });
}

// root with one node in place of another. Unlike substitute, which protects the replacement's free axes from
// capture, it is to stand in the scope of what it replaces.
Id with_node_replaced(Arena& a, Id root, Id from, Id to) {
  std::unordered_map<Id, Id> done{{from, to}};
  std::vector<Id> args;
  for (Id id : reachable(a, root)) {
    if (id == from) continue;
    args.clear();
    for (Id x : a[id].args()) args.push_back(done.at(x));
    done[id] = a.with_args(id, args);
  }
  return done.at(root);
}

bool is_active_node(Differentiation& d, const Node& n, const std::unordered_set<Id>& active) {
  if (!is_float(n.type)) return false;
  auto on = [&](size_t i) { return active.contains(n.arg(i)); };
  if (is_read(n.op)) return d.is_active(n.symbol) || (n.op == Op::read_or && on(n.arg_count - 1));
  if (n.op == Op::select) return on(1) || on(2);
  if (n.op == Op::cast || is_reduction(n.op)) return on(0);
  for (size_t i = 0; i < n.arg_count; ++i)
    if (on(i) && !d.partials.is_zero(n.op, i)) return true;
  return false;
}

std::unordered_set<Id> active_nodes(Differentiation& d, Id body) {
  std::unordered_set<Id> active;
  for (Id id : reachable(d.arena(), body))
    if (is_active_node(d, d.arena()[id], active)) active.insert(id);
  return active;
}

class Sweep {
 public:
  Sweep(Differentiation& d, const Definition& definition)
      : d_(d), a_(d.arena()), definition_(definition), name_(d.program.tensor(definition.target()).name) {
    body_ = with_distinct_axes(definition.body);
    active_ = active_nodes(d_, body_);
  }

  void run() {
    if (!active_.contains(body_)) return;
    hand(body_, start());
    std::vector<Id> ids = reachable(a_, body_);
    for (size_t i = ids.size(); i-- > 0;) {
      auto at = pending_.find(ids[i]);
      if (at == pending_.end()) continue;
      std::vector<Contribution> merged = merge(a_, std::move(at->second));
      pending_.erase(at);
      for (Contribution& c : merged) pass_on(ids[i], std::move(c));
    }
  }

 private:
  // ---- the scope ----

  // Renames bound axes so that a name has one range in the whole body: the adjoint of a node is kept per
  // node, and nodes of equal text are shared.
  Id with_distinct_axes(Id body) {
    used_ = all_axes(a_, std::vector<Id>{body});
    for (const AxisRange& r : definition_.axes)
      if (!contains(used_, r.axis)) used_.push_back(r.axis);
    while (true) {
      scope_.ranges = definition_.axes;
      auto clash = first_clash(body);
      if (!clash) return body;
      body = with_node_replaced(a_, body, clash->first, clash->second);
    }
  }

  // A reduction that has to be renamed, and its new form. Fills the scope on the way.
  std::optional<std::pair<Id, Id>> first_clash(Id body) {
    std::vector<Id> ids = reachable(a_, body);
    for (size_t i = ids.size(); i-- > 0;) {
      const Node& n = a_[ids[i]];
      if (!is_reduction(n.op)) continue;
      for (const AxisRange& r : reduce_axes(n)) {
        const AxisRange* known = scope_.find(r.axis);
        if (known && !(*known == r)) return std::pair{ids[i], renamed(n)};
        if (!known) scope_.ranges.push_back(r);
      }
    }
    return std::nullopt;
  }

  Id fresh(Id base) {
    Id axis = a_.fresh_axis(base, used_);
    used_.push_back(axis);
    return axis;
  }

  // The reduction over fresh axes.
  Id renamed(const Node& n) {
    Replacements map;
    std::vector<AxisRange> axes = reduce_axes(n);
    for (AxisRange& r : axes) {
      r.begin = substitute(a_, r.begin, map);
      r.end = substitute(a_, r.end, map);
      Id axis = fresh(r.axis);
      map[r.axis] = axis;
      r.axis = axis;
    }
    return a_.reduce(n.op, axes, substitute(a_, reduce_condition(n), map),
                     substitute(a_, reduce_body(n), map));
  }

  // Bound axes inside value that are called like one of axes get other names.
  Id clear_of(Id value, std::span<const Id> axes) {
    std::vector<Id> bound;
    for (Id id : reachable(a_, value))
      if (is_reduction(a_[id].op))
        for (const AxisRange& r : reduce_axes(a_[id])) bound.push_back(r.axis);
    bool clash = std::ranges::any_of(axes, [&](Id x) { return contains(bound, x); });
    return clash ? substitute(a_, value, {}, axes) : value;
  }

  // ---- values ----

  std::vector<Id> own_axes() const {
    std::vector<Id> axes;
    for (const AxisRange& r : definition_.axes) axes.push_back(r.axis);
    return axes;
  }

  // The adjoint of the target: read where it stands in a tensor, else made a definition of its own.
  Contribution start() {
    TensorId t = definition_.target();
    TensorAdjoint& adjoint = d_.adjoint(t);
    Contribution c{own_axes(), {}, {}, kNone};
    Id guard = adjoint.guards[0];
    for (size_t i = 1; i < adjoint.guards.size(); ++i) guard = disjunction(a_, guard, adjoint.guards[i]);
    add_literals(a_, c.implied, guard);
    Id total = d_.total(t);
    if (a_[total].op != Op::read && a_[total].op != Op::constant) {
      TensorId made = d_.define("d_" + name_, a_[total].type, definition_.axes, total);
      total = a_.read(made, a_[total].type, c.axes);
    }
    c.value = total;
    return c;
  }

  // The forward value of a node, at a point of these axes. The definition's tensor holds its whole body's.
  Id value_of(Id node, std::span<const Id> axes) {
    if (node != body_ || !same_set(axes, own_axes())) return node;
    return a_.read(definition_.target(), d_.program.tensor(definition_.target()).type, own_axes());
  }

  // Can these axes be those of a tensor? (They start at 0, and their ends are sizes.)
  bool rectangular(std::span<const Id> axes) const {
    return std::ranges::all_of(axes, [&](Id x) {
      const AxisRange* r = scope_.find(x);
      return r && is_constant(a_, r->begin, 0) && a_[r->end].axes_count == 0;
    });
  }

  Id as_tensor(const std::string& name, std::span<const Id> axes, Id value) {
    TensorId t = d_.define(name, a_[value].type, scope_.ranges_of(axes), value);
    return a_.read(t, a_[value].type, axes);
  }

  // A value that is about to be used at every point of a reduction: what it costs is paid here once.
  void settle(Contribution& c, Op op) {
    if ((c.guards.empty() && !contains_reduction(a_, c.value)) || !rectangular(c.axes)) return;
    c.value =
        as_tensor("d_" + name_ + "_" + std::string(info(op).text), c.axes, guarded(a_, c.guards, c.value));
    c.implied.insert(c.implied.begin(), c.guards.begin(), c.guards.end());
    c.guards.clear();
  }

  // ---- handing down ----

  void hand(Id child, Contribution c) {
    if (!active_.contains(child)) return;
    if (!is_read(a_[child].op)) sum_out(c, scope_.closure(a_, a_[child].free_axes()));
    pending_[child].push_back(std::move(c));
  }

  // Sums over the axes that are not to be kept. One that a guard depends on stays until the read is reached:
  // summed here, the guard could no longer stand outside what it guards.
  void sum_out(Contribution& c, std::span<const Id> keep) {
    std::vector<Id> stay(keep.begin(), keep.end()), leave;
    for (Id id : c.guards)
      for (Id axis : a_[id].free_axes()) stay.push_back(axis);
    stay = scope_.closure(a_, stay);
    for (Id axis : c.axes)
      if (!contains(stay, axis)) leave.push_back(axis);
    if (leave.empty()) return;
    c.value = a_.reduce(Op::sum, scope_.ranges_of(leave), kNone, clear_of(c.value, leave));
    std::erase_if(c.axes, [&](Id x) { return contains(leave, x); });
    std::erase_if(c.implied, [&](Id id) { return depends_on(a_, id, leave); });
  }

  void pass_on(Id id, Contribution c) {
    const Node& n = a_[id];
    if (is_read(n.op)) return reach(n, std::move(c));
    if (is_reduction(n.op)) return enter(id, std::move(c));
    if (n.op == Op::select) {
      Contribution other = c;
      add_literals(a_, c.guards, n.arg(0));
      add_literals(a_, other.guards, negation(a_, n.arg(0)));
      hand(n.arg(1), std::move(c));
      return hand(n.arg(2), std::move(other));
    }
    if (n.op == Op::cast) {
      c.value = a_.to(a_[n.arg(0)].type, c.value);
      return hand(n.arg(0), std::move(c));
    }
    for (size_t i = 0; i < n.arg_count; ++i) {
      if (!active_.contains(n.arg(i))) continue;
      Scaled s = d_.partials.scale(a_, c.value, n.op, i, n.args(), value_of(id, c.axes));
      if (s.value == kNone) continue;
      Contribution down{c.axes, c.guards, c.implied, s.value};
      if (s.singular) {
        for (Id x : down.implied) add_literals(a_, down.guards, x);
        down.implied.clear();
      }
      for (Id x : s.guards) add_literals(a_, down.guards, x);
      for (Id x : s.implied) add_literals(a_, down.implied, x);
      hand(n.arg(i), std::move(down));
    }
  }

  // ---- reductions ----

  void enter(Id id, Contribution c) {
    const Node& n = a_[id];
    if (n.op != Op::sum && n.op != Op::prod && n.op != Op::max && n.op != Op::min) return;
    std::vector<Id> bound;
    for (const AxisRange& r : reduce_axes(n)) bound.push_back(r.axis);
    separate(c, bound);
    bool extreme = n.op == Op::max || n.op == Op::min;
    Id largest = kNone;
    if (extreme) {
      Extreme e = extreme_of(id, n);
      largest = e.value;
      c.value = a_.div(c.value, e.ties);
    }
    settle(c, n.op);
    c.value = clear_of(c.value, bound);
    for (Literals* list : {&c.guards, &c.implied})
      for (Id& x : *list) x = clear_of(x, bound);
    c.axes.insert(c.axes.end(), bound.begin(), bound.end());
    c.axes = scope_.closure(a_, c.axes);
    add_literals(a_, c.guards, reduce_condition(n));
    if (extreme) add_literals(a_, c.guards, a_.eq(reduce_body(n), largest));
    if (n.op == Op::prod) c.value = a_.mul(c.value, product_of_others(n));
    hand(reduce_body(n), std::move(c));
  }

  // Axes that were kept for a guard's sake and are called like the ones to be bound get other names.
  void separate(Contribution& c, std::span<const Id> bound) {
    Replacements map;
    for (Id axis : bound)
      if (contains(c.axes, axis)) {
        auto at = std::ranges::find(scope_.ranges, axis, &AxisRange::axis);
        AxisRange r = *at;
        map[axis] = r.axis = fresh(axis);
        scope_.ranges.insert(at, r);
      }
    if (map.empty()) return;
    c.value = substitute(a_, c.value, map);
    for (Literals* list : {&c.guards, &c.implied})
      for (Id& x : *list) x = substitute(a_, x, map);
    for (Id& x : c.axes)
      if (auto at = map.find(x); at != map.end()) x = at->second;
    c.axes = scope_.closure(a_, c.axes);
  }

  struct Extreme {
    Id value;
    Id ties;
  };

  // The extreme and how many elements attain it, both computed once per point of the reduction's own axes.
  Extreme extreme_of(Id id, const Node& n) {
    if (auto at = extremes_.find(id); at != extremes_.end()) return at->second;
    std::vector<Id> axes = scope_.closure(a_, n.free_axes());
    std::string name = name_ + "_" + std::string(info(n.op).text);
    Id value = value_of(id, axes);
    bool box = rectangular(axes);
    if (value == id && box) value = as_tensor(name, axes, id);
    std::vector<AxisRange> ranges = reduce_axes(n);
    std::vector<Id> bound;
    for (const AxisRange& r : ranges) bound.push_back(r.axis);
    Literals attained;
    add_literals(a_, attained, reduce_condition(n));
    add_literals(a_, attained, a_.eq(reduce_body(n), clear_of(value, bound)));
    Id ties = a_.reduce(Op::sum, ranges, conjunction(a_, attained), a_.constant(n.type, 1));
    if (box) ties = as_tensor(name_ + "_ties", axes, ties);
    return extremes_[id] = {clear_of(value, bound), ties};
  }

  // prod(l' if l' != l: body(l')): right with any number of zeros.
  Id product_of_others(const Node& n) {
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

  // ---- reads ----

  void reach(const Node& n, Contribution c) {
    std::vector<Id> indices;
    for (Id x : read_indices(n)) indices.push_back(a_.to(DType::i64, x));
    const Tensor& tensor = d_.program.tensor(n.symbol);
    if (n.op == Op::read_or && active_.contains(n.args().back())) {
      Contribution outside = c;
      Literals inside;
      for (size_t i = 0; i < indices.size(); ++i) {
        add_literals(a_, inside, a_.binary(Op::le, a_.integer(0), indices[i]));
        add_literals(a_, inside, a_.binary(Op::lt, indices[i], tensor.shape[i]));
      }
      if (!inside.empty()) {
        add_literals(a_, outside.guards, negation(a_, conjunction(a_, inside)));
        hand(n.args().back(), std::move(outside));
      }
    }
    if (d_.is_active(n.symbol)) contribute(n.symbol, indices, c);
  }

  // d tensor[target] += sum(axes if guards && indices == target: value); an axis that is itself an index is
  // replaced by the target's axis, so that the usual reads need no equation.
  void contribute(TensorId t, std::span<const Id> indices, const Contribution& c) {
    std::vector<Id> wanted;
    for (Id x : indices) wanted.push_back(a_[x].op == Op::axis && !contains(wanted, x) ? x : kNone);
    const std::vector<Id> targets = target_axes(d_, t, wanted, used_);
    const std::vector<Id> shape = d_.program.tensor(t).shape;
    used_.insert(used_.end(), targets.begin(), targets.end());

    Replacements map;
    Literals conditions;
    std::vector<size_t> equations;
    for (size_t i = 0; i < indices.size(); ++i) {
      const AxisRange* r = contains(c.axes, indices[i]) ? scope_.find(indices[i]) : nullptr;
      if (!r || map.contains(indices[i])) {
        equations.push_back(i);
        continue;
      }
      map[r->axis] = targets[i];
      if (!is_constant(a_, r->begin, 0)) add_literals(a_, conditions, a_.binary(Op::le, r->begin, r->axis));
      if (r->end != shape[i] && !provably_equal(a_, r->end, shape[i]))
        add_literals(a_, conditions, a_.binary(Op::lt, r->axis, r->end));
    }
    for (Id x : c.guards) add_literals(a_, conditions, x);

    std::vector<AxisRange> remaining;
    std::vector<Id> bound;
    for (AxisRange r : scope_.ranges_of(c.axes)) {
      if (map.contains(r.axis)) continue;
      remaining.push_back(r);
      bound.push_back(r.axis);
      if (contains(targets, r.axis)) map[r.axis] = bound.back() = fresh(r.axis);
    }
    std::vector<Id> avoid = targets;
    avoid.insert(avoid.end(), bound.begin(), bound.end());
    // What is replaced must not be bound inside either.
    std::vector<Id> clear = avoid;
    for (const auto& [from, to] : map) clear.push_back(from);
    std::ranges::sort(clear);
    auto moved = [&](Id x) { return substitute(a_, clear_of(x, clear), map, avoid); };
    for (size_t i = 0; i < remaining.size(); ++i)
      remaining[i] = {bound[i], moved(remaining[i].begin), moved(remaining[i].end)};
    for (Id& x : conditions) x = moved(x);
    for (size_t i : equations) add_literals(a_, conditions, a_.eq(moved(indices[i]), targets[i]));

    std::vector<AxisRange> outside;
    for (size_t i = 0; i < targets.size(); ++i) outside.push_back({targets[i], a_.integer(0), shape[i]});
    Literals inner, outer;
    for (Id x : conditions) {
      bool stays = depends_on(a_, x, bound) ||
                   (!remaining.empty() && !reads_inside(a_, d_.program, x, outside, outer));
      (stays ? inner : outer).push_back(x);
    }
    Id value = clear_of(moved(c.value), avoid);
    if (!remaining.empty()) value = a_.reduce(Op::sum, remaining, conjunction(a_, inner), value);
    TensorAdjoint& adjoint = d_.adjoint(t);
    adjoint.terms.push_back(guarded(a_, outer, value));
    for (Id x : c.implied)
      if (Id y = moved(x); !depends_on(a_, y, bound)) add_literals(a_, outer, y);
    adjoint.guards.push_back(conjunction(a_, outer));
  }

  Differentiation& d_;
  Arena& a_;
  const Definition& definition_;
  std::string name_;
  Id body_ = kNone;
  Scope scope_;
  std::vector<Id> used_;  // names not to be given to new axes
  std::unordered_set<Id> active_;
  std::unordered_map<Id, std::vector<Contribution>> pending_;
  std::unordered_map<Id, Extreme> extremes_;
};

}  // namespace

bool is_active(Differentiation& d, const Definition& definition) {
  return active_nodes(d, definition.body).contains(definition.body);
}

void sweep(Differentiation& d, const Definition& definition) { Sweep(d, definition).run(); }

}  // namespace xhat
