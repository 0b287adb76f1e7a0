// Loops whose iterations need not run one after the other.
//
//   for c in 0..3 { a[:,c] = a[:,c] * s[c] }       a_1 = a, but a_1[i,c] = a[i,c] * s[c] for all c, i
//   for i in 0..N { s += x[i] }                    s_1 = s + sum(i: x[i])
//
// What enters an iteration is known where no earlier one wrote: such a read is one of what entered the loop. Writes of one iteration are
// seen by its later reads at the elements that they name. If no element is then written by two iterations, the loop variable is one
// more axis of each write; a value that is only added to becomes a reduction; one that is made anew each time is the last one.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "expr/core/conditions.h"
#include "expr/imperative/image.h"
#include "expr/imperative/rename.h"
#include "expr/imperative/symbolic.h"
#include "expr/index/affine.h"

namespace xhat::imperative {

namespace {

// Thrown where iterations depend on each other; the reason goes to the loop.
struct Dependent {
  std::string why;
};

struct Known {
  std::vector<AxisRange> axes;
  std::vector<Id> conditions;
};

class WithoutLoop {
 public:
  WithoutLoop(Context& context, const LoopItem& loop) : c_(context), a_(context.arena()), l_(loop) {}

  Items run() {
    if (!is_straight(l_.body)) throw Dependent{"a loop or branch in it stays"};
    if (reads_data(a_, l_.begin) || reads_data(a_, l_.end)) throw Dependent{"how often it runs depends on data"};
    for (size_t k = 0; k < l_.carried.size(); ++k) entering_[l_.carried[k].entering] = k;
    for (const Item& item : l_.body) {
      if (const auto* w = std::get_if<Write>(&item.is))
        writes_[w->result] = w;
      else if (const auto* d = std::get_if<Definition>(&item.is)) {
        if (d->is_call()) throw Dependent{"an op is called in it"};
        definitions_[d->target()] = d;
      }
    }
    around_ = c_.loop_ranges();
    range_ = {l_.variable, l_.begin, l_.end};
    std::vector<bool> sums;
    for (const CarriedValue& v : l_.carried) {
      const bool apart = disjoint(v);
      sums.push_back(!(apart && writes_.contains(v.leaving)) && accumulates(v));
      if (!apart && !sums.back()) throw Dependent{fmt::format("iterations write the same elements of {}", name(v.entering))};
    }
    for (const Item& item : l_.body)
      if (const auto* d = std::get_if<Definition>(&item.is); d && !accumulator_definitions_.contains(d->target())) define(*d);
    for (size_t k = 0; k < l_.carried.size(); ++k) {
      if (sums[k])
        reduce(l_.carried[k]);
      else if (chain(l_.carried[k]).empty() || !ends_in_entering(l_.carried[k]))
        last(l_.carried[k]);
      else
        parallel(l_.carried[k]);
    }
    return std::move(out_);
  }

 private:
  struct Lifted {
    TensorId tensor;
    bool by_iteration;
  };

  const std::string& name(TensorId t) const { return c_.program.tensors[t].name; }

  // The writes from what enters to what leaves, first one first.
  std::vector<const Write*> chain(const CarriedValue& v) const {
    std::vector<const Write*> found;
    for (TensorId t = v.leaving; writes_.contains(t); t = found.back()->base) found.push_back(writes_.at(t));
    std::ranges::reverse(found);
    return found;
  }
  bool ends_in_entering(const CarriedValue& v) const {
    const std::vector<const Write*> writes = chain(v);
    return (writes.empty() ? v.leaving : writes[0]->base) == v.entering;
  }

  // The write of another iteration: its indices, ranges and guard, with axes of their own.
  struct Other {
    std::vector<AxisRange> axes;
    std::vector<Id> indices;
    Id guard = kNone;
  };
  Other other(const Write& w, Id variable, const char* mark) {
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

  // No element is written by two iterations.
  bool disjoint(const CarriedValue& v) {
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

  // The read of what enters at this element is one of what entered the loop: no earlier iteration wrote it.
  Id from_before(const Node& read, const Known& known) {
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

  bool is_inner(TensorId t) const { return entering_.contains(t) || writes_.contains(t) || definitions_.contains(t); }
  bool touches(Id x) {
    if (auto it = touches_.find(x); it != touches_.end()) return it->second;
    for (Id id : reachable(a_, x)) {
      if (touches_.contains(id)) continue;
      const Node& n = a_[id];
      touches_[id] = (is_read(n.op) && is_inner(n.symbol)) || std::ranges::any_of(n.args(), [&](Id y) { return touches_.at(y); });
    }
    return touches_.at(x);
  }

  // The expression in terms of what stands before the loop, at an iteration.
  Id resolved(Id x, const Known& known) {
    std::unordered_map<Id, Id> memo;
    return resolved(x, known, memo);
  }
  Id resolved(Id x, const Known& known, std::unordered_map<Id, Id>& memo) {
    if (!touches(x)) return x;
    if (auto it = memo.find(x); it != memo.end()) return it->second;
    return memo[x] = resolved_node(x, known, memo);
  }
  Id resolved_node(Id x, const Known& known, std::unordered_map<Id, Id>& memo) {
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

  // A read, its indices resolved, of something that an iteration has.
  Id element(Id x, const Known& known) {
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
      if (it->second.by_iteration) indices.insert(indices.begin(), c_.tidy(a_.sub(l_.variable, l_.begin)));
      return a_.read(it->second.tensor, n.type, indices);
    }
    return resolved(substitute(a_, d.body, to, avoid), known);
  }

  Known around(std::span<const AxisRange> axes) const {
    Known known{around_, c_.state.conditions};
    known.axes.push_back(range_);
    known.axes.insert(known.axes.end(), axes.begin(), axes.end());
    return known;
  }

  // The number of iterations, where it is the same for all that stands around.
  Id trips() {
    Id count = c_.tidy(a_.sub(l_.end, l_.begin));
    if (!a_[count].free_axes().empty()) return kNone;
    if (prove_nonnegative(a_, c_.scope.expanded(count)).verdict == BoundsAnswer::Verdict::proved) return count;
    return a_.binary(Op::maximum, count, a_.integer(0));
  }

  // A definition with a reduction is computed once for all iterations; others stand where they are read.
  void define(const Definition& d) {
    const bool reduces = std::ranges::any_of(reachable(a_, d.body), [&](Id x) { return is_reduction(a_[x].op); });
    if (!reduces) return;
    const Known known = around(d.axes);
    Id body = resolved(d.body, known);
    const bool varies = std::ranges::count(a_[body].free_axes(), l_.variable) > 0;
    const Id count = trips();
    if (varies && count == kNone) return;
    std::vector<AxisRange> axes = d.axes;
    if (varies) {
      axes.insert(axes.begin(), {l_.variable, a_.integer(0), count});
      if (!is_constant(a_, l_.begin, 0)) body = tidied(substitute(a_, body, {{l_.variable, a_.add(l_.variable, l_.begin)}}));
    }
    Items* outer = std::exchange(c_.items, &out_);
    lifted_[d.target()] = {c_.define(name(d.target()), axes, body, d.pos), varies};
    c_.items = outer;
  }
  Id tidied(Id body) {
    return rewrite(a_, body, [&](Id x) {
      const Node n = a_[x];
      if (!is_read(n.op)) return x;
      std::vector<Id> args(n.args().begin(), n.args().end());
      for (size_t d = 0; d < read_indices(n).size(); ++d) args[d] = c_.tidy(args[d]);
      return a_.with_args(x, args);
    });
  }

  // Each write with the loop variable as one more axis.
  void parallel(const CarriedValue& v) {
    TensorId base = v.initial;
    const std::vector<const Write*> writes = chain(v);
    for (const Write* w : writes) {
      if (std::ranges::none_of(w->indices, [&](Id i) { return std::ranges::count(a_[i].free_axes(), l_.variable) > 0; }))
        throw Dependent{fmt::format("which iteration writes an element of {} is not said by its place", name(v.entering))};
      Write wide = *w;
      const Known known = around(w->axes);
      Known guarded = known;
      if (w->guard != kNone) {
        wide.guard = resolved(w->guard, known);
        for (Id part : conjuncts(a_, wide.guard)) guarded.conditions.push_back(part);
      }
      wide.body = resolved(w->body, guarded);
      for (Id& index : wide.indices) index = resolved(index, known);
      wide.axes.insert(wide.axes.begin(), range_);
      // A guard that asks for the iteration goes to the body's side: it is a condition on the axes.
      if (wide.guard != kNone && std::ranges::count(a_[wide.guard].free_axes(), l_.variable) > 0) {
        Id before = a_.read(base, a_[wide.body].type, wide.indices);
        wide.body = a_.select(wide.guard, wide.body, before);
        wide.guard = kNone;
      }
      if (!is_invertible(c_, wide))
        throw Dependent{fmt::format("which iteration writes an element of {} is not said by its place", name(v.entering))};
      wide.base = base;
      wide.result = w == writes.back()
                        ? v.result
                        : c_.new_tensor(name(v.entering), c_.program.tensors[w->result].type, c_.program.tensors[w->result].shape);
      base = wide.result;
      out_.emplace_back().is = std::move(wide);
    }
  }

  // Made anew in each iteration: the last one's, if there is one.
  void last(const CarriedValue& v) {
    const Tensor t = c_.program.tensors[v.result];
    Definition d;
    d.targets = {v.result};
    d.axes = c_.element_axes(t.shape);
    d.pos = l_.pos;
    std::vector<Id> element_at;
    for (const AxisRange& r : d.axes) element_at.push_back(r.axis);
    const Known known = around(d.axes);
    const Id value = resolved(a_.read(v.leaving, t.type, element_at), known);
    const Id end = c_.tidy(a_.sub(l_.end, a_.integer(1)));
    d.body = tidied(substitute(a_, value, {{l_.variable, end}}));
    const Id any = a_.binary(Op::lt, l_.begin, l_.end);
    if (!c_.implied(around_, c_.state.conditions, any)) d.body = a_.select(any, d.body, a_.read(v.initial, t.type, element_at));
    out_.emplace_back().is = std::move(d);
  }

  // Sums and the like.
  struct Sum {
    Op op = Op::sum;
    Id value = kNone;
  };
  struct Total {
    std::vector<std::pair<const Write*, Sum>> writes;  // or
    const Definition* definition = nullptr;
    Sum sum;
  };

  static std::optional<Op> reduction_of(Op op) {
    if (op == Op::add || op == Op::sub) return Op::sum;
    if (op == Op::mul) return Op::prod;
    if (op == Op::maximum) return Op::max;
    if (op == Op::minimum) return Op::min;
    return std::nullopt;
  }
  Id neutral(Op op, DType type) {
    const double infinite = std::numeric_limits<double>::infinity();
    if (op == Op::sum || op == Op::prod) return a_.constant(type, op == Op::prod ? 1 : 0);
    if (!is_float(type)) return kNone;
    return a_.constant(type, op == Op::max ? -infinite : infinite);
  }

  // body = old ⊕ value, where old is the read `self`: the value; the neutral one where body is self.
  Id stripped(Id body, Id self, std::optional<Op>& op) {
    const Node n = a_[body];
    if (body == self) return op ? neutral(*op, n.type) : kNone;
    if (n.op == Op::select && !contains(n.arg(0), self)) {
      // The side that changes something says how.
      const size_t first = n.arg(1) == self ? 2 : 1;
      Id side[3];
      side[first] = stripped(n.arg(first), self, op);
      if (side[first] == kNone) return kNone;
      side[3 - first] = stripped(n.arg(3 - first), self, op);
      if (side[3 - first] == kNone) return kNone;
      return a_.select(n.arg(0), side[1], side[2]);
    }
    const std::optional<Op> with = reduction_of(n.op);
    if (!with || (op && *op != *with)) return kNone;
    for (size_t k = 0; k < 2; ++k) {
      if (n.op == Op::sub && k == 1) break;
      if (!contains(n.arg(k), self) || contains(n.arg(1 - k), self)) continue;
      op = with;
      Id rest = n.arg(1 - k);
      if (n.op == Op::sub) rest = a_.unary(Op::neg, rest);
      if (n.arg(k) == self) return rest;
      const Id more = stripped(n.arg(k), self, op);
      return more == kNone ? kNone : a_.apply(n.op == Op::sub ? Op::add : n.op, {{more, rest}});
    }
    return kNone;
  }
  bool contains(Id root, Id node) const {
    const std::vector<Id> below = reachable(a_, root);
    return std::ranges::find(below, node) != below.end();
  }

  // Is it only added to? Then nothing but the sum reads it, which is seen when the rest is resolved.
  bool accumulates(const CarriedValue& v) {
    Total total;
    std::optional<Op> op;
    if (auto it = definitions_.find(v.leaving); it != definitions_.end()) {
      const Definition& d = *it->second;
      std::vector<Id> at;
      for (const AxisRange& r : d.axes) at.push_back(r.axis);
      const Id self = a_.read(v.entering, c_.program.tensors[v.entering].type, at);
      const Id value = stripped(d.body, self, op);
      if (value == kNone || !op || reads(value, v.entering)) return false;
      total.definition = &d;
      total.sum = {*op, value};
      accumulator_definitions_.insert(d.target());
    } else {
      const std::vector<const Write*> writes = chain(v);
      if (writes.empty() || !ends_in_entering(v)) return false;
      for (const Write* w : writes) {
        const Id self = a_.read(w->base, c_.program.tensors[v.entering].type, w->indices);
        std::optional<Op> one;
        const Id value = stripped(w->body, self, one);
        if (value == kNone || !one || (op && *op != *one) || reads(value, v.entering)) return false;
        op = one;
        total.writes.push_back({w, {*one, value}});
      }
    }
    totals_[v.entering] = std::move(total);
    return true;
  }
  bool reads(Id root, TensorId t) const {
    const std::vector<TensorId> all = tensors_read(a_, root);
    return std::ranges::find(all, t) != all.end();
  }

  Id reduced(Op op, std::span<const AxisRange> axes, Id condition, Id value) {
    const DType type = a_[value].type;
    const bool total = op == Op::sum || op == Op::prod;
    if (total && is_integer(type)) value = a_.to(DType::i64, value);
    return a_.to(type, a_.reduce(op, axes, condition, value));
  }
  Id joined(Op op, Id x, Id y) {
    return a_.binary(op == Op::sum ? Op::add : op == Op::prod ? Op::mul : op == Op::max ? Op::maximum : Op::minimum, x, y);
  }

  void reduce(const CarriedValue& v) {
    const Total& total = totals_.at(v.entering);
    const DType type = c_.program.tensors[v.result].type;
    if (total.definition) {
      Definition d = *total.definition;
      d.targets = {v.result};
      const Id value = resolved(total.sum.value, around(d.axes));
      std::vector<Id> at;
      for (const AxisRange& r : d.axes) at.push_back(r.axis);
      d.body = joined(total.sum.op, a_.read(v.initial, type, at), reduced(total.sum.op, {&range_, 1}, kNone, value));
      out_.emplace_back().is = std::move(d);
      return;
    }
    TensorId base = v.initial;
    for (const auto& [w, sum] : total.writes) {
      const TensorId result =
          w == total.writes.back().first ? v.result : c_.new_tensor(name(v.entering), type, c_.program.tensors[v.result].shape);
      Known known = around(w->axes);
      const Id guard = w->guard == kNone ? kNone : resolved(w->guard, known);
      if (guard != kNone)
        for (Id part : conjuncts(a_, guard)) known.conditions.push_back(part);
      const Id value = resolved(sum.value, known);
      const bool moves = std::ranges::any_of(w->indices, [&](Id i) { return std::ranges::count(a_[i].free_axes(), l_.variable) > 0; });
      bool varies = moves;
      for (const AxisRange& r : w->axes)
        for (Id end : {r.begin, r.end}) varies = varies || std::ranges::count(a_[end].free_axes(), l_.variable) > 0;
      if (!varies) {
        Write wide = *w;
        wide.base = base;
        wide.result = result;
        wide.guard = kNone;
        wide.body = joined(sum.op, a_.read(base, type, w->indices), reduced(sum.op, {&range_, 1}, guard, value));
        out_.emplace_back().is = std::move(wide);
      } else {
        out_.push_back({scattered(*w, sum.op, guard, value, base, result)});
      }
      base = result;
    }
  }

  // Every iteration adds to elements that it chooses: each element sums what was meant for it.
  Definition scattered(const Write& w, Op op, Id guard, Id value, TensorId base, TensorId result) {
    const Tensor t = c_.program.tensors[result];
    Definition d;
    d.targets = {result};
    d.axes = c_.element_axes(t.shape);
    d.pos = w.pos;
    std::vector<Id> element_at, avoid;
    for (const AxisRange& r : d.axes) element_at.push_back(r.axis), avoid.push_back(r.axis);
    // The write's axes have the names of elements.
    Replacements apart;
    std::vector<AxisRange> unknowns = {range_};
    for (size_t k = 0; k < w.axes.size(); ++k) {
      const Id axis = a_.fresh_axis(w.axes[k].axis, avoid);
      avoid.push_back(axis);
      unknowns.push_back({axis, substitute(a_, w.axes[k].begin, apart), substitute(a_, w.axes[k].end, apart)});
      apart[w.axes[k].axis] = axis;
    }
    auto moved = [&](Id x) { return substitute(a_, x, apart, avoid); };
    std::vector<Id> indices, conditions;
    for (Id index : w.indices) indices.push_back(moved(index));
    std::optional<Solution> s = solve(c_, unknowns, indices, element_at, t.shape);
    std::vector<AxisRange> axes = unknowns;
    Replacements to;
    if (s) {
      axes = s->open;
      to = s->values;
      conditions = s->conditions;
    } else {
      for (size_t k = 0; k < indices.size(); ++k) {
        const Id index = reads_data(a_, indices[k]) ? c_.looked_up(indices[k], t.shape[k]) : indices[k];
        conditions.push_back(a_.eq(index, element_at[k]));
      }
    }
    Known known{around_, c_.state.conditions};
    known.axes.insert(known.axes.end(), d.axes.begin(), d.axes.end());
    known.axes.insert(known.axes.end(), axes.begin(), axes.end());
    std::vector<Id> asked;
    for (Id part : conditions) {
      if (c_.implied(known.axes, known.conditions, part)) continue;
      asked.push_back(part);
      known.conditions.push_back(part);
    }
    // The definition is looked at where the guard fails, too, although what stands here is known to hold.
    const Id condition = all_hold(c_, asked, guard == kNone ? kNone : substitute(a_, moved(guard), to, avoid));
    const Id summand = substitute(a_, moved(value), to, avoid);
    const Id old = a_.read(base, t.type, element_at);
    if (axes.empty()) {
      d.body = joined(op, old, summand);
      if (condition != kNone) d.body = a_.select(condition, d.body, old);
    } else {
      d.body = joined(op, old, reduced(op, axes, condition, summand));
    }
    return d;
  }

  Context& c_;
  Arena& a_;
  const LoopItem& l_;
  std::vector<AxisRange> around_;
  AxisRange range_{};
  std::map<TensorId, size_t> entering_;
  std::map<TensorId, const Write*> writes_;
  std::map<TensorId, const Definition*> definitions_;
  std::map<TensorId, Lifted> lifted_;
  std::set<TensorId> accumulator_definitions_;
  std::map<TensorId, Total> totals_;
  std::unordered_map<Id, bool> touches_;
  Items out_;
};

}  // namespace

std::optional<Items> without_loop(Context& context, const LoopItem& loop, std::string& why) {
  try {
    return WithoutLoop(context, loop).run();
  } catch (const Dependent& d) {
    why = d.why;
    return std::nullopt;
  }
}

}  // namespace xhat::imperative
