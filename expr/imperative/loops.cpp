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
#include "expr/imperative/iteration.h"
#include "expr/imperative/symbolic.h"
#include "expr/index/affine.h"

namespace xhat::imperative {

namespace {

class WithoutLoop : private Iteration {
 public:
  using Iteration::Iteration;

  Items run() {
    enter();
    std::vector<bool> sums;
    for (const CarriedValue& v : l_.carried) {
      const bool apart = disjoint(v);
      sums.push_back(!(apart && writes_.contains(v.leaving)) && accumulates(v));
      if (!apart && !sums.back()) throw Dependent{fmt::format("iterations write the same elements of {}", name(v.entering))};
    }
    for (const Definition* d : order_)
      if (!accumulator_definitions_.contains(d->target())) define(*d);
    for (const Definition& d : anew_) define(d);
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
  // The number of iterations, where it is the same for all that stands around.
  Id trips() {
    Id count = c_.tidy(a_.sub(l_.end, l_.begin));
    if (!a_[count].free_axes().empty()) return kNone;
    if (prove_nonnegative(a_, c_.scope.expanded(count)).verdict == BoundsAnswer::Verdict::proved) return count;
    return a_.binary(Op::maximum, count, a_.integer(0));
  }

  bool reduces(const Definition& d) const {
    return std::ranges::any_of(reachable(a_, d.body), [&](Id x) { return is_reduction(a_[x].op); });
  }

  // How many writes and reductions of an iteration read it, also by way of definitions that stand where they are read.
  int readers(TensorId t) const {
    int found = 0;
    for (const auto& [result, w] : writes_) {
      std::vector<Id> all = w->indices;
      all.push_back(w->body);
      if (w->guard != kNone) all.push_back(w->guard);
      found += std::ranges::any_of(all, [&](Id x) { return reads(x, t); });
    }
    for (const auto& [target, d] : definitions_)
      if (target != t && reads(d->body, t)) found += reduces(*d) ? 1 : readers(target);
    return found;
  }

  // A definition with a reduction is computed once for all iterations; others stand where they are read. How many iterations there are may
  // depend on loops around: then it is as long as they ever go, if more than one place would compute it.
  void define(const Definition& d) {
    if (!reduces(d)) return;
    const Known known = around(d.axes);
    Id body = resolved(d.body, known);
    const bool varies = std::ranges::count(a_[body].free_axes(), l_.variable) > 0;
    const Id count = trips();
    std::vector<AxisRange> axes = d.axes;
    Id first = l_.begin;
    if (varies && count == kNone) {
      if (readers(d.target()) < 2 || !c_.known_largest(l_.end)) return;
      if (!c_.implied(around_, c_.state.conditions, a_.binary(Op::le, a_.integer(0), l_.begin))) return;
      first = a_.integer(0);
      axes.insert(axes.begin(), {l_.variable, first, l_.end});
      const Id nothing = a_[body].type == DType::boolean ? a_.boolean(false) : a_.constant(a_[body].type, 0);
      if (!is_constant(a_, l_.begin, 0)) body = a_.select(a_.binary(Op::le, l_.begin, l_.variable), body, nothing);
    } else if (varies) {
      axes.insert(axes.begin(), {l_.variable, a_.integer(0), count});
      if (!is_constant(a_, l_.begin, 0)) body = tidied(substitute(a_, body, {{l_.variable, a_.add(l_.variable, l_.begin)}}));
    }
    Items* outer = std::exchange(c_.items, &out_);
    lifted_[d.target()] = {c_.define(name(d.target()), axes, body, d.pos), varies ? first : kNone};
    c_.items = outer;
    anywhere_.clear();
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

  // The body with the definitions written out that read the accumulator: m_1 = max(m, x), m_2 = if c then m_1 else m.
  Id inlined(Id body, TensorId accumulator, std::set<TensorId>& written_out) {
    for (int round = 0; round < 8; ++round) {
      const Id next = rewrite(a_, body, [&](Id x) {
        const Node n = a_[x];
        auto it = n.op == Op::read ? definitions_.find(n.symbol) : definitions_.end();
        if (it == definitions_.end() || !reads(it->second->body, accumulator)) return x;
        const Definition& d = *it->second;
        written_out.insert(d.target());
        Replacements to;
        for (size_t k = 0; k < d.axes.size(); ++k) to[d.axes[k].axis] = n.arg(k);
        return substitute(a_, d.body, to);
      });
      if (next == body) break;
      body = next;
    }
    return body;
  }

  // The body in terms of what the write overwrites: where writes before it do not touch this element, it reads what stood there before them.
  Id of_base(const Write& w) {
    Known known = around(w.axes);
    if (w.guard != kNone)
      for (Id part : conjuncts(a_, w.guard)) known.conditions.push_back(part);
    const DType type = c_.program.tensors[w.result].type;
    const Id self = a_.read(w.base, type, w.indices);
    Replacements same;
    for (auto it = writes_.find(w.base); it != writes_.end(); it = writes_.find(it->second->base)) {
      const Id before = a_.read(it->second->base, type, w.indices);
      if (value_at(c_, *it->second, w.indices, known.axes, known.conditions, before) != before) break;
      same[before] = self;
    }
    return same.empty() ? w.body : rewrite(a_, w.body, [&](Id x) {
      auto it = same.find(x);
      return it == same.end() ? x : it->second;
    });
  }

  // Is it only added to? Then nothing reads what the sum has added, which is seen when the rest is resolved: x[i] -= l[i,j] * x[j] for j before
  // i reads elements that the loop does not write.
  bool accumulates(const CarriedValue& v) {
    Total total;
    std::optional<Op> op;
    std::set<TensorId> written_out;
    if (auto it = definitions_.find(v.leaving); it != definitions_.end()) {
      const Definition& d = *it->second;
      std::vector<Id> at;
      for (const AxisRange& r : d.axes) at.push_back(r.axis);
      const Id self = a_.read(v.entering, c_.program.tensors[v.entering].type, at);
      const Id value = stripped(inlined(d.body, v.entering, written_out), self, op);
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
        const Id value = stripped(inlined(of_base(*w), w->base, written_out), self, one);
        if (value == kNone || !one || (op && *op != *one)) return false;
        op = one;
        total.writes.push_back({w, {*one, value}});
      }
    }
    // They read what enters, and are parts of the sum now.
    accumulator_definitions_.insert(written_out.begin(), written_out.end());
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
    for (const auto& [write, sum] : total.writes) {
      const TensorId result =
          write == total.writes.back().first ? v.result : c_.new_tensor(name(v.entering), type, c_.program.tensors[v.result].shape);
      Known known = around(write->axes);
      const Id guard = write->guard == kNone ? kNone : resolved(write->guard, known);
      if (guard != kNone)
        for (Id part : conjuncts(a_, guard)) known.conditions.push_back(part);
      Write w = *write;
      for (Id& index : w.indices) index = resolved(index, known);
      const Id value = resolved(sum.value, known);
      const bool moves = std::ranges::any_of(w.indices, [&](Id i) { return std::ranges::count(a_[i].free_axes(), l_.variable) > 0; });
      bool varies = moves;
      for (const AxisRange& r : w.axes)
        for (Id end : {r.begin, r.end}) varies = varies || std::ranges::count(a_[end].free_axes(), l_.variable) > 0;
      if (!varies) {
        Write wide = w;
        wide.base = base;
        wide.result = result;
        wide.guard = kNone;
        wide.body = joined(sum.op, a_.read(base, type, w.indices), reduced(sum.op, {&range_, 1}, guard, value));
        out_.emplace_back().is = std::move(wide);
      } else {
        scatter(w, sum.op, guard, value, base, result);
      }
      base = result;
    }
  }

  // Every iteration adds to elements that it chooses: each element sums what was meant for it. Where all iterations choose the same row,
  // elements of others are not looked at, so that a loop around sees which row it is.
  void scatter(const Write& w, Op op, Id guard, Id value, TensorId base, TensorId result) {
    const Tensor t = c_.program.tensors[result];
    const std::vector<AxisRange> elements = c_.element_axes(t.shape);
    std::vector<AxisRange> chosen;  // of the elements, the axes along which iterations choose
    std::vector<Id> at, element_at, avoid, written, extents;
    for (size_t k = 0; k < elements.size(); ++k) {
      avoid.push_back(elements[k].axis);
      const bool same = is_same_inside(w, w.indices[k], t.shape[k]);
      at.push_back(same ? w.indices[k] : elements[k].axis);
      if (same) continue;
      chosen.push_back(elements[k]);
      element_at.push_back(elements[k].axis);
      written.push_back(w.indices[k]);
      extents.push_back(t.shape[k]);
    }
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
    for (Id index : written) indices.push_back(moved(index));
    std::optional<Solution> s = solve(c_, unknowns, indices, element_at, extents);
    std::vector<AxisRange> axes = unknowns;
    Replacements to;
    if (s) {
      axes = s->open;
      to = s->values;
      conditions = s->conditions;
    } else {
      for (size_t k = 0; k < indices.size(); ++k) {
        const bool at_run = reads_data(a_, indices[k]) || out_of_reach(a_, indices[k]);
        const Id index = at_run ? c_.looked_up(indices[k], extents[k]) : indices[k];
        conditions.push_back(a_.eq(index, element_at[k]));
      }
    }
    Known known{around_, c_.state.conditions};
    known.axes.insert(known.axes.end(), chosen.begin(), chosen.end());
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
    // Who added to the row before hands it on, without a value of the whole tensor between.
    Write* before = out_.empty() ? nullptr : std::get_if<Write>(&out_.back().is);
    if (before && (before->result != base || before->indices != at || before->axes != chosen || before->guard != kNone)) before = nullptr;
    const Id old = before ? before->body : a_.read(base, t.type, at);
    Id body = joined(op, old, axes.empty() ? summand : reduced(op, axes, condition, summand));
    if (axes.empty() && condition != kNone) body = a_.select(condition, body, old);
    if (before) {
      before->result = result;
      before->body = body;
      return;
    }
    if (chosen.size() < elements.size()) {
      out_.emplace_back().is = Write{base, result, chosen, at, body, kNone, w.pos};
      return;
    }
    Definition d;
    d.targets = {result};
    d.axes = chosen;
    d.body = body;
    d.pos = w.pos;
    out_.emplace_back().is = std::move(d);
  }

  // Is the index one place of the tensor, the same for all iterations and points of the write?
  bool is_same_inside(const Write& w, Id index, Id extent) {
    auto varies = [&](Id axis) {
      return axis == l_.variable || std::ranges::any_of(w.axes, [&](const AxisRange& r) { return r.axis == axis; });
    };
    if (std::ranges::any_of(a_[index].free_axes(), varies) || reads_data(a_, index)) return false;
    return c_.implied(around_, c_.state.conditions, a_.binary(Op::le, a_.integer(0), index)) &&
           c_.implied(around_, c_.state.conditions, a_.binary(Op::lt, index, extent));
  }

  std::set<TensorId> accumulator_definitions_;
  std::map<TensorId, Total> totals_;
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
