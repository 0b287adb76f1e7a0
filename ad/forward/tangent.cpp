#include "ad/forward/tangent.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ad/common/body.h"

namespace xhat {
namespace {

bool reads_data(const Arena& a, Id id) { return !tensors_read(a, id).empty(); }

class Push {
 public:
  Push(Differentiation& d, const Tangents& tangents, const Definition& definition)
      : a_(d.arena()), d_(d), tangents_(tangents), definition_(definition), b_(d, definition) {
    std::vector<Id> ids = reachable(a_, b_.root());
    forward_.insert(ids.begin(), ids.end());
    conditional_ = std::ranges::any_of(ids, [&](Id id) {
      const Node& n = a_[id];
      return n.op == Op::select || n.op == Op::read_or ||
             (is_reduction(n.op) && !is_true(a_, reduce_condition(n)));
    });
  }

  Tangent run(const std::string& wanted) {
    for (Id id : reachable(a_, b_.root()))
      if (b_.is_active(id))
        if (Contribution c = tangent_of(id); c.value != kNone) known_.emplace(id, std::move(c));
    auto at = known_.find(b_.root());
    if (at == known_.end()) return {};
    Contribution& c = at->second;
    Tangent t{kNoTensor, b_.own_axes(), c.guards};
    for (Id x : c.implied) add_literals(a_, t.where, x);
    t.tensor = d_.define(wanted, a_[c.value].type, definition_.axes, tidy(guarded(a_, c.guards, c.value)));
    return t;
  }

 private:
  // The tangents of a node's operands add up to its own. One over the same point, so axes play no part here.
  Contribution tangent_of(Id id) {
    const Node& n = a_[id];
    if (n.op == Op::read) return of_read(n);
    if (n.op == Op::read_or) return of_read_or(n);
    if (n.op == Op::select) return of_select(n);
    if (is_reduction(n.op)) return of_reduction(id);
    if (n.op == Op::cast) {
      Contribution c = operand(n.arg(0));
      if (c.value != kNone) c.value = a_.to(n.type, c.value);
      return c;
    }
    std::vector<Contribution> terms;
    for (size_t i = 0; i < n.arg_count; ++i)
      if (Contribution c = operand(n.arg(i)); c.value != kNone) scale(c, id, i, terms);
    return sum_of(std::move(terms));
  }

  static Contribution zero() { return {{}, {}, {}, kNone}; }

  Contribution operand(Id id) const {
    auto at = known_.find(id);
    return at == known_.end() ? zero() : at->second;
  }

  Contribution sum_of(std::vector<Contribution> terms) {
    if (terms.empty()) return zero();
    Path all;
    return merge(a_, std::move(terms), all).at(0);
  }

  // Where the tangent is zero, an infinite partial must not see it.
  void scale(Contribution& c, Id id, size_t i, std::vector<Contribution>& terms) {
    const Node& n = a_[id];
    Scaled s = scale_by_partial(a_, c.value, n.op, i, n.args(), b_.value_of(id, b_.own_axes()));
    if (s.value == kNone) return;
    Contribution term{{}, std::move(s.guards), {}, s.value};
    for (Id x : c.guards) add_literals(a_, term.guards, x);
    for (Id x : c.implied) add_literals(a_, s.singular ? term.guards : term.implied, x);
    for (Id x : s.implied) add_literals(a_, term.implied, x);
    terms.push_back(std::move(term));
  }

  Contribution of_select(const Node& n) {
    std::vector<Contribution> terms;
    for (size_t i : {1u, 2u}) {
      Contribution c = operand(n.arg(i));
      if (c.value == kNone) continue;
      Literals guards;
      add_literals(a_, guards, i == 1 ? n.arg(0) : negation(a_, n.arg(0)));
      for (Id x : c.guards) add_literals(a_, guards, x);
      c.guards = std::move(guards);
      terms.push_back(std::move(c));
    }
    return sum_of(std::move(terms));
  }

  // ---- reads ----

  Contribution of_read(const Node& n) {
    const Tangent* t = tangent(n.symbol);
    if (!t) return zero();
    Literals implied;
    add_known(implied, *t, n);
    return {{}, {}, std::move(implied), a_.read(t->tensor, n.type, read_indices(n))};
  }

  Contribution of_read_or(const Node& n) {
    const Tangent* t = tangent(n.symbol);
    Literals inside = conditions_inside(n);
    if (inside.empty()) return of_read(n);  // never outside
    Contribution outside = operand(n.args().back());
    if (!t) {
      if (outside.value == kNone) return outside;
      Literals guards{negation(a_, conjunction(a_, inside))};
      for (Id x : outside.guards) add_literals(a_, guards, x);
      outside.guards = std::move(guards);
      return outside;
    }
    Id other = outside.value == kNone ? a_.constant(n.type, 0) : guarded(a_, outside.guards, outside.value);
    Contribution c{{}, {}, {}, a_.read_or(t->tensor, n.type, read_indices(n), other)};
    Literals within = inside;
    add_known(within, *t, n);
    if (outside.value == kNone) {
      c.implied = std::move(within);
      return c;
    }
    // Zero where it is inside and zero there, or outside and zero there.
    Literals without{negation(a_, conjunction(a_, inside))};
    for (const Literals& list : {outside.guards, outside.implied})
      for (Id x : list) add_literals(a_, without, x);
    add_literals(a_, c.implied, disjunction(a_, conjunction(a_, within), conjunction(a_, without)));
    return c;
  }

  const Tangent* tangent(TensorId t) const {
    return t < tangents_.size() && tangents_[t].tensor != kNoTensor ? &tangents_[t] : nullptr;
  }

  // A condition over a tensor's axes, at the point that is read.
  Id moved(const Tangent& t, Id condition, const Node& read) {
    Replacements map;
    for (size_t i = 0; i < t.axes.size(); ++i) map[t.axes[i]] = a_.to(DType::i64, read.arg(i));
    condition = substitute(a_, condition, map, b_.used);
    for (Id axis : all_axes(a_, std::span(&condition, 1)))
      if (!contains(b_.used, axis)) b_.used.push_back(axis);
    return condition;
  }

  // Where the tangent that is read is not zero. What would walk as far as an element says (`sum(k in 0..i: …)` at i = ids[j]) is no
  // expression of ours, and left out: less is known then.
  void add_known(Literals& list, const Tangent& t, const Node& read) {
    for (Id x : t.where) {
      const Id here = moved(t, x, read);
      const bool plain = std::ranges::none_of(reachable(a_, here), [&](Id id) {
        if (!is_reduction(a_[id].op)) return false;
        return std::ranges::any_of(reduce_axes(a_[id]), [&](const AxisRange& r) { return reads_data(a_, r.begin) || reads_data(a_, r.end); });
      });
      if (plain) add_literals(a_, list, here);
    }
  }

  Literals conditions_inside(const Node& n) {
    Literals inside;
    const std::vector<Id>& shape = d_.program.tensor(n.symbol).shape;
    for (size_t i = 0; i < shape.size(); ++i) {
      Id index = a_.to(DType::i64, n.arg(i));
      const AxisRange* r = b_.scope.find(index);
      if (!r || !is_constant(a_, r->begin, 0))
        add_literals(a_, inside, a_.binary(Op::le, a_.integer(0), index));
      if (!r || r->end != shape[i]) add_literals(a_, inside, a_.binary(Op::lt, index, shape[i]));
    }
    return inside;
  }

  // ---- reductions ----

  // sum: the sum of the tangents. prod: of those times the product of the others. max, min: of those of the ties,
  // divided by their number (inside the sum, so that there is no 0/0 where a NaN ties with nothing).
  Contribution of_reduction(Id id) {
    const Node& n = a_[id];
    if (n.op != Op::sum && n.op != Op::prod && n.op != Op::max && n.op != Op::min) return zero();
    Contribution c = operand(reduce_body(n));
    if (c.value == kNone) return c;
    Literals condition;
    add_literals(a_, condition, reduce_condition(n));
    bool by_data = std::ranges::any_of(condition, [&](Id x) { return reads_data(a_, x); });
    if (n.op == Op::prod) c.value = a_.mul(c.value, b_.product_of_others(n));
    if (n.op == Op::max || n.op == Op::min) {
      Body::Extreme e = b_.extreme_of(id, {}, !conditional_ || b_.inside_anywhere(id));
      std::vector<Id> bound = bound_axes(n);
      add_literals(a_, condition, a_.eq(reduce_body(n), b_.clear_of(e.value, bound)));
      c.value = a_.div(c.value, b_.clear_of(e.ties, bound));
    }
    return summed(n, std::move(condition), by_data, std::move(c));
  }

  static std::vector<Id> bound_axes(const Node& n) {
    std::vector<Id> bound;
    for (const AxisRange& r : reduce_axes(n)) bound.push_back(r.axis);
    return bound;
  }

  // by_data: whether there is anything to sum over depends on more than sizes.
  Contribution summed(const Node& n, Literals condition, bool by_data, Contribution c) {
    std::vector<Id> bound = bound_axes(n);
    Contribution result = zero();
    Literals needed;  // no element has a tangent unless these hold for one
    for (Id x : c.guards) {
      // One behind others that stay inside may need their protection.
      bool leaves = !depends_on(a_, x, bound) && (needed.empty() || !reads_data(a_, x));
      add_literals(a_, leaves ? result.guards : needed, x);
    }
    Literals all = condition;
    for (Id x : needed) add_literals(a_, all, x);
    for (Id x : c.implied) add_literals(a_, depends_on(a_, x, bound) ? needed : result.implied, x);
    std::vector<AxisRange> axes = reduce_axes(n);
    result.value = a_.reduce(Op::sum, axes, conjunction(a_, all), c.value);
    if (needed.empty() && by_data) needed.push_back(a_.boolean(true));
    if (!needed.empty() && !knows_of_others(needed) && !knows_of_others(condition))
      add_literals(a_, result.implied, is_any(n, conjunction(a_, condition), conjunction(a_, needed)));
    return result;
  }

  // any(axes if condition: needed), computed once per point if it can be.
  Id is_any(const Node& n, Id condition, Id needed) {
    Id any = a_.reduce(Op::any, reduce_axes(n), condition, needed);
    std::vector<Id> axes = b_.scope.closure(a_, a_[any].free_axes());
    if (!b_.rectangular(axes) || !b_.inside_anywhere(any)) return any;
    return b_.as_tensor(b_.name() + "_any", axes, any);
  }

  // Is it about an `any` already? Of what is known of sums of sums nothing is kept: it would cost more than it is worth.
  bool knows_of_others(std::span<const Id> literals) const {
    for (Id id : reachable(a_, literals)) {
      if (is_reduction(a_[id].op)) return true;
      if (!is_read(a_[id].op) || a_[id].type != DType::boolean) continue;
      for (const Definition& d : d_.derived)
        if (d.target() == a_[id].symbol) return true;
    }
    return false;
  }

  // ---- text ----

  // Signs go up and meet: x + -y is x - y, -x * y is -(x*y), --x is x. Exact; for what is not of the forward.
  Id tidy(Id root) {
    auto positive = [&](Id id) { return a_[id].op == Op::neg ? a_[id].arg(0) : id; };
    return rewrite(a_, root, [&](Id id) {
      const Node& n = a_[id];
      if (forward_.contains(id) || n.arg_count == 0) return id;
      Id x = positive(n.arg(0)), y = n.arg_count > 1 ? positive(n.arg(1)) : kNone;
      bool minus = x != n.arg(0), other = y != kNone && y != n.arg(1);
      if (n.op == Op::neg && minus) return x;
      if (n.op == Op::add && other) return a_.sub(n.arg(0), y);
      if (n.op == Op::add && minus) return a_.sub(n.arg(1), x);
      if (n.op == Op::sub && other) return a_.add(n.arg(0), y);
      if ((n.op == Op::mul || n.op == Op::div) && minus != other)
        return a_.unary(Op::neg, a_.binary(n.op, x, y));
      if ((n.op == Op::mul || n.op == Op::div) && minus) return a_.binary(n.op, x, y);
      return id;
    });
  }

  Arena& a_;
  Differentiation& d_;
  const Tangents& tangents_;
  const Definition& definition_;
  Body b_;
  bool conditional_ = false;        // may some of the body not be evaluated?
  std::unordered_set<Id> forward_;  // nodes of the body
  std::unordered_map<Id, Contribution> known_;
};

}  // namespace

Tangent push_forward(Differentiation& d, const Tangents& tangents, const Definition& definition,
                     const std::string& wanted) {
  return Push(d, tangents, definition).run(wanted);
}

}  // namespace xhat
