#include "ad/reverse/sweep.h"

#include <algorithm>
#include <unordered_map>

#include "ad/common/body.h"
#include "expr/index/affine.h"

namespace xhat {
namespace {

bool contains_reduction(const Arena& a, Id root) {
  return std::ranges::any_of(reachable(a, root), [&](Id id) { return is_reduction(a[id].op); });
}

class Sweep {
 public:
  Sweep(Differentiation& d, const Definition& definition)
      : d_(d), a_(d.arena()), definition_(definition), b_(d, definition) {}

  void run() {
    if (!b_.is_active(b_.root())) return;
    hand(b_.root(), start());
    std::vector<Id> ids = reachable(a_, b_.root());
    for (size_t i = ids.size(); i-- > 0;) {
      auto at = pending_.find(ids[i]);
      if (at == pending_.end()) continue;
      std::vector<Contribution> merged = merge(a_, std::move(at->second), path_);
      pending_.erase(at);
      for (Contribution& c : merged) pass_on(ids[i], std::move(c));
    }
  }

 private:
  // ---- values ----

  // The adjoint of the target: read where it stands in a tensor, else made a definition of its own.
  Contribution start() {
    TensorId t = definition_.target();
    TensorAdjoint& adjoint = d_.adjoint(t);
    Contribution c{b_.own_axes(), {}, {}, kNone};
    Id guard = adjoint.guards[0];
    for (size_t i = 1; i < adjoint.guards.size(); ++i) guard = disjunction(a_, guard, adjoint.guards[i]);
    add_literals(a_, c.implied, guard);
    Id total = d_.total(t);
    if (a_[total].op != Op::read && a_[total].op != Op::constant) {
      TensorId made = d_.define("d_" + b_.name(), a_[total].type, definition_.axes, total);
      total = a_.read(made, a_[total].type, c.axes);
    }
    c.value = total;
    if (definition_.sometimes_unread && a_[total].op != Op::constant)
      add_literals(a_, c.implied, a_.binary(Op::ne, total, a_.constant(a_[total].type, 0)));
    path_.add_derived(c.implied);
    return c;
  }

  // A value that is about to be used at every point of a reduction: what it costs is paid here once. The guards
  // are in the value then; the shields remain.
  void settle(Contribution& c, Op op, const Literals& shields) {
    if ((c.guards.empty() && !contains_reduction(a_, c.value)) || !b_.rectangular(c.axes)) return;
    c.value = b_.as_tensor("d_" + b_.name() + "_" + std::string(info(op).text), c.axes,
                           guarded(a_, c.guards, c.value));
    c.implied.insert(c.implied.begin(), c.guards.begin(), c.guards.end());
    c.guards = shields;
  }

  // The guards that keep the reduction's reads inside their tensors: all but what derivatives brought along.
  Literals shields_of(Contribution& c, Id reduction) {
    if (b_.inside_anywhere(reduction)) return {};
    for (Id x : c.implied) add_literals(a_, c.guards, x);
    c.implied.clear();
    Literals shields = c.guards;
    std::erase_if(shields, [&](Id x) { return !path_.has(x); });
    return shields;
  }

  // A condition of the forward that must hold where what is below it is computed.
  void put_on_path(Literals& guards, Id condition) {
    Literals all;
    add_literals(a_, all, condition);
    path_.add(all);
    for (Id x : all) add_literals(a_, guards, x);
  }

  // The forward never computed a factor where a condition on the way to it fails, and it may be anything there, nan too;
  // a derivative that is infinite is so wherever it is zero otherwise. What the value has in it already is then said again.
  void restore(Contribution& c, const Scaled& s) {
    if (s.number) return;
    auto out = [&](Id x) { return s.singular || path_.has(x); };
    for (Id x : c.implied)
      if (out(x)) add_literals(a_, c.guards, x);
    std::erase_if(c.implied, out);
  }

  template <class Renamed>
  void rename(Contribution& c, Renamed renamed) {
    for (Literals* list : {&c.guards, &c.implied})
      for (Id& x : *list) {
        Id y = renamed(x);
        path_.rename(x, y);
        x = y;
      }
  }

  // ---- handing down ----

  void hand(Id child, Contribution c) {
    if (!b_.is_active(child)) return;
    if (!is_read(a_[child].op)) sum_out(c, b_.scope.closure(a_, a_[child].free_axes()));
    pending_[child].push_back(std::move(c));
  }

  // Sums over the axes that are not to be kept. One that a guard depends on stays until the read is reached:
  // summed here, the guard could no longer stand outside what it guards.
  void sum_out(Contribution& c, std::span<const Id> keep) {
    std::vector<Id> stay(keep.begin(), keep.end()), leave;
    for (Id id : c.guards)
      for (Id axis : a_[id].free_axes()) stay.push_back(axis);
    stay = b_.scope.closure(a_, stay);
    for (Id axis : c.axes)
      if (!contains(stay, axis)) leave.push_back(axis);
    if (leave.empty()) return;
    std::vector<AxisRange> ranges = b_.scope.ranges_of(leave);
    c.value = a_.reduce(Op::sum, ranges, kNone, b_.clear_of(c.value, leave));
    std::erase_if(c.axes, [&](Id x) { return contains(leave, x); });
    std::erase_if(c.implied, [&](Id id) { return depends_on(a_, id, leave); });
    // Elsewhere the forward had no points either. (Where dims alone decide, nothing is left that reads.)
    bool everywhere = std::ranges::all_of(ranges, [&](const AxisRange& r) {
      return a_[r.begin].axes_count == 0 && a_[r.end].axes_count == 0;
    });
    if (!everywhere) put_on_path(c.implied, nonempty(a_, ranges, b_.scope.ranges_of(c.axes)));
  }

  void pass_on(Id id, Contribution c) {
    const Node& n = a_[id];
    if (is_read(n.op)) return reach(n, std::move(c));
    if (is_reduction(n.op)) return enter(id, std::move(c));
    if (n.op == Op::select) {
      Contribution other = c;
      put_on_path(c.guards, n.arg(0));
      put_on_path(other.guards, negation(a_, n.arg(0)));
      hand(n.arg(1), std::move(c));
      return hand(n.arg(2), std::move(other));
    }
    if (n.op == Op::cast) {
      c.value = a_.to(a_[n.arg(0)].type, c.value);
      return hand(n.arg(0), std::move(c));
    }
    for (size_t i = 0; i < n.arg_count; ++i) {
      if (!b_.is_active(n.arg(i))) continue;
      Scaled s = scale_by_partial(a_, c.value, n.op, i, n.args(), b_.value_of(id, c.axes));
      if (s.value == kNone) continue;
      Contribution down{c.axes, c.guards, c.implied, s.value};
      restore(down, s);
      path_.add_derived(s.guards);
      path_.add_derived(s.implied);
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
    if (n.op != Op::sum) restore(c, {});
    Literals shields = shields_of(c, id);
    bool extreme = n.op == Op::max || n.op == Op::min;
    Id largest = kNone;
    if (extreme) {
      Body::Extreme e = b_.extreme_of(id, shields);
      largest = b_.clear_of(e.value, bound);
      c.value = a_.div(c.value, e.ties);
    }
    settle(c, n.op, shields);
    c.value = b_.clear_of(c.value, bound);
    rename(c, [&](Id x) { return b_.clear_of(x, bound); });
    c.axes.insert(c.axes.end(), bound.begin(), bound.end());
    c.axes = b_.scope.closure(a_, c.axes);
    put_on_path(c.guards, reduce_condition(n));
    if (extreme) {
      Id attained = a_.eq(reduce_body(n), largest);
      path_.add_derived({attained});
      add_literals(a_, c.guards, attained);
    }
    if (n.op == Op::prod) {
      c.value = a_.mul(c.value, b_.product_of_others(n));
      restore(c, {});
    }
    hand(reduce_body(n), std::move(c));
  }

  // Axes that were kept for a guard's sake and are called like the ones to be bound get other names.
  void separate(Contribution& c, std::span<const Id> bound) {
    Replacements map;
    for (Id axis : bound)
      if (contains(c.axes, axis)) {
        auto at = std::ranges::find(b_.scope.ranges, axis, &AxisRange::axis);
        AxisRange r = *at;
        map[axis] = r.axis = b_.fresh(axis);
        b_.scope.ranges.insert(at, r);
      }
    if (map.empty()) return;
    c.value = substitute(a_, c.value, map);
    rename(c, [&](Id x) { return substitute(a_, x, map); });
    for (Id& x : c.axes)
      if (auto at = map.find(x); at != map.end()) x = at->second;
    c.axes = b_.scope.closure(a_, c.axes);
  }

  // ---- reads ----

  void reach(const Node& n, Contribution c) {
    std::vector<Id> indices;
    for (Id x : read_indices(n)) indices.push_back(a_.to(DType::i64, x));
    const Tensor& tensor = d_.program.tensor(n.symbol);
    if (n.op == Op::read_or && b_.is_active(n.args().back())) {
      Contribution outside = c;
      Literals inside;
      for (size_t i = 0; i < indices.size(); ++i) {
        add_literals(a_, inside, a_.binary(Op::le, a_.integer(0), indices[i]));
        add_literals(a_, inside, a_.binary(Op::lt, indices[i], tensor.shape[i]));
      }
      if (!inside.empty()) {
        put_on_path(outside.guards, negation(a_, conjunction(a_, inside)));
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
    const std::vector<Id> targets = target_axes(d_, t, wanted, b_.used);
    const std::vector<Id> shape = d_.program.tensor(t).shape;
    b_.used.insert(b_.used.end(), targets.begin(), targets.end());

    Replacements map;
    Literals conditions;
    std::vector<size_t> equations;
    for (size_t i = 0; i < indices.size(); ++i) {
      const AxisRange* r = contains(c.axes, indices[i]) ? b_.scope.find(indices[i]) : nullptr;
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
    for (AxisRange r : b_.scope.ranges_of(c.axes)) {
      if (map.contains(r.axis)) continue;
      remaining.push_back(r);
      bound.push_back(r.axis);
      if (contains(targets, r.axis)) map[r.axis] = bound.back() = b_.fresh(r.axis);
    }
    std::vector<Id> avoid = targets;
    avoid.insert(avoid.end(), bound.begin(), bound.end());
    // What is replaced must not be bound inside either.
    std::vector<Id> clear = avoid;
    for (const auto& [from, to] : map) clear.push_back(from);
    std::ranges::sort(clear);
    auto moved = [&](Id x) { return substitute(a_, b_.clear_of(x, clear), map, avoid); };
    for (size_t i = 0; i < remaining.size(); ++i)
      remaining[i] = {bound[i], moved(remaining[i].begin), moved(remaining[i].end)};
    for (Id& x : conditions) x = moved(x);
    for (size_t i : equations) add_literals(a_, conditions, a_.eq(moved(indices[i]), targets[i]));

    std::vector<AxisRange> outside;
    for (size_t i = 0; i < targets.size(); ++i) outside.push_back({targets[i], a_.integer(0), shape[i]});
    auto [inner, outer] = split_guards(a_, d_.program, conditions, bound, outside);
    Id value = b_.clear_of(moved(c.value), avoid);
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
  Body b_;
  std::unordered_map<Id, std::vector<Contribution>> pending_;
  Path path_;
};

}  // namespace

void sweep(Differentiation& d, const Definition& definition) { Sweep(d, definition).run(); }

}  // namespace xhat
