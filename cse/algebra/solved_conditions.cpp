#include "cse/algebra/solved_conditions.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "ad/common/guards.h"
#include "cse/match/bodies.h"
#include "expr/index/linear.h"

namespace xhat {
namespace {

class Solver {
 public:
  Solver(TensorExprTree& tree, std::vector<AxisRange>& bound, Id& condition, Product& body, std::span<const AxisRange> scope,
         const KnownIndices& indices)
      : tree_(tree), a_(tree.arena()), bound_(bound), condition_(condition), body_(body), scope_(scope), indices_(indices) {}

  bool run() {
    bool changed = false;
    while (condition_step() || guard_step()) changed = true;
    return changed;
  }

 private:
  bool condition_step() {
    Literals all;
    add_literals(a_, all, condition_);
    for (size_t i = 0; i < all.size(); ++i) {
      const auto here = all.begin() + static_cast<std::ptrdiff_t>(i);
      if (solved(all[i], {{all.begin(), here}, {here + 1, all.end()}}, {})) return true;
    }
    return false;
  }

  // A factor `if c then x else 0`: what of c can be solved leaves it.
  bool guard_step() {
    for (const Factor& f : body_.factors) {
      const Node n = a_[f.atom];
      if (f.halves <= 0 || n.op != Op::select || !is_constant(a_, n.arg(2), 0) || !depends_on_any(a_, n.arg(0), bound_)) continue;
      Literals given, guards;
      add_literals(a_, given, condition_);
      add_literals(a_, guards, n.arg(0));
      for (size_t i = 0; i < guards.size(); ++i) {
        // What the data read by this guard need comes before it: it goes into the condition as well.
        const auto here = guards.begin() + static_cast<std::ptrdiff_t>(i);
        const bool needs = !tensors_read(a_, guards[i]).empty();
        Literals before = given, rest(needs ? here : guards.begin(), guards.end());
        std::erase(rest, guards[i]);
        if (needs)
          for (auto x = guards.begin(); x != here; ++x) add_literals(a_, before, *x);
        Product open = body_;
        std::erase(open.factors, f);
        tree_.multiply_in(open, tree_.form(guarded(a_, rest, n.arg(1))), f.halves);
        if (solved(guards[i], {before, {}}, open)) return true;
      }
    }
    return false;
  }

  // The other conditions: what is asked before may keep inside what is read by those after.
  struct Around {
    Literals before, after;
  };

  // The literal as a range of a bound axis, or as its value; then `rest` are the conditions, and `body`, if there is one, the body.
  bool solved(Id literal, const Around& rest, std::optional<Product> body) {
    const Node n = a_[with_axis_alone(literal)];
    if (n.op != Op::eq && n.op != Op::lt && n.op != Op::le) return false;
    for (size_t side : {0u, 1u}) {
      auto axis = std::ranges::find(bound_, counted(n.arg(side)), &AxisRange::axis);
      const Id other = a_.to(DType::i64, n.arg(1 - side));
      if (axis == bound_.end() || depends_on_any(a_, other, bound_)) continue;
      if (depends_on_any(a_, axis->begin, bound_) || depends_on_any(a_, axis->end, bound_)) continue;
      if (n.op == Op::eq && !tensors_read(a_, other).empty() && asked_for_by_a_range(axis->axis)) continue;
      if (n.op == Op::eq) return at_value(*axis, other, rest, body.value_or(body_));
      if (!narrowed(*axis, other, n.op == Op::le, side == 0)) continue;
      Literals all = rest.before;
      all.insert(all.end(), rest.after.begin(), rest.after.end());
      condition_ = all_of(all);
      if (body) body_ = *body;
      return true;
    }
    return false;
  }

  // t < u + 1 as t <= u, where u is bound.
  Id with_axis_alone(Id literal) {
    const Node n = a_[literal];
    if ((n.op != Op::lt && n.op != Op::le) || a_[n.arg(0)].type != DType::i64 || a_[n.arg(1)].type != DType::i64) return literal;
    auto is_bound = [&](Id x) { return std::ranges::find(bound_, x, &AxisRange::axis) != bound_.end(); };
    if (is_bound(counted(n.arg(0))) || is_bound(counted(n.arg(1)))) return literal;
    Linear difference = linear(a_, n.arg(1));  // above 0; of integers, from 1 on
    add_scaled(difference, linear(a_, n.arg(0)), -1);
    if (n.op == Op::lt) --difference.constant;
    for (const AxisRange& r : bound_) {
      auto term = difference.terms.find(r.axis);
      if (term == difference.terms.end() || std::abs(term->second) != 1) continue;
      const int64_t sign = term->second;
      difference.terms.erase(term);
      Linear other;
      add_scaled(other, difference, -sign);
      return sign > 0 ? a_.binary(Op::le, to_index(a_, other), r.axis) : a_.binary(Op::le, r.axis, to_index(a_, other));
    }
    return literal;
  }

  // No range reads a tensor: data do not stand for an axis that one depends on.
  bool asked_for_by_a_range(Id axis) const {
    return std::ranges::any_of(bound_, [&](const AxisRange& r) {
      return depends_on(a_, r.begin, std::span(&axis, 1)) || depends_on(a_, r.end, std::span(&axis, 1));
    });
  }

  // The axis of i32(d): an axis has less than 2^31 steps.
  Id counted(Id id) const {
    const Node& n = a_[id];
    return n.op == Op::cast && (n.type == DType::i32 || n.type == DType::u32) && a_[n.arg(0)].op == Op::axis ? n.arg(0) : id;
  }

  bool at_value(AxisRange axis, Id value, const Around& rest, const Product& body) {
    const DType type = float_type(body);
    const Replacements at = {{axis.axis, value}};
    std::erase_if(bound_, [&](const AxisRange& r) { return r.axis == axis.axis; });
    for (AxisRange& r : bound_) r.begin = substitute(a_, r.begin, at), r.end = substitute(a_, r.end, at);
    Literals now;
    auto asked = [&](const Literals& literals) {
      for (Id x : literals) add_literals(a_, now, substitute(a_, x, at));
    };
    // Those of the axis read at its value, which is inside its range then.
    Literals before = rest.before;
    const auto of_axis = std::ranges::stable_partition(before, [&](Id x) { return !depends_on_any(a_, x, std::span(&axis, 1)); });
    asked({before.begin(), of_axis.begin()});
    const Id extent = a_.sub(axis.end, axis.begin), from = is_constant(a_, axis.begin, 0) ? value : a_.sub(value, axis.begin);
    const bool known = is_constant(a_, axis.begin, 0) && indices_.inside(a_, value, axis.end, scope_);
    if (!known && !in_bounds(a_, from, is_constant(a_, axis.begin, 0) ? axis.end : extent, scope_)) {
      add_literals(a_, now, a_.binary(Op::le, axis.begin, value));
      add_literals(a_, now, a_.binary(Op::lt, value, axis.end));
    }
    asked({of_axis.begin(), of_axis.end()});
    asked(rest.after);
    positions_first(a_, now);
    condition_ = all_of(now);
    body_ = tree_.form(substitute(a_, tree_.to_expression(body, type), at));
    return true;
  }

  // axis <= other, axis < other, or turned; only where the new end is inside the range, so that no hull gets larger.
  bool narrowed(AxisRange& axis, Id other, bool equal, bool above) {
    if (!tensors_read(a_, other).empty()) return false;
    const Id one = a_.integer(1);
    const Id edge = above == equal ? a_.add(other, one) : other;
    const Id width = a_.add(a_.sub(axis.end, axis.begin), one);
    const bool from_zero = is_constant(a_, axis.begin, 0);
    if (!in_bounds(a_, from_zero ? edge : a_.sub(edge, axis.begin), from_zero ? a_.add(axis.end, one) : width, scope_)) return false;
    (above ? axis.end : axis.begin) = edge;
    return true;
  }

  Id all_of(const Literals& literals) { return literals.empty() ? a_.boolean(true) : conjunction(a_, literals); }
  DType float_type(const Product& p) const { return p.factors.empty() ? DType::f32 : a_[p.factors[0].atom].type; }

  TensorExprTree& tree_;
  Arena& a_;
  std::vector<AxisRange>& bound_;
  Id& condition_;
  Product& body_;
  std::span<const AxisRange> scope_;
  const KnownIndices& indices_;
};

}  // namespace

bool solve_conditions(TensorExprTree& tree, std::vector<AxisRange>& bound, Id& condition, Product& body, std::span<const AxisRange> scope,
                      const KnownIndices& indices) {
  return Solver(tree, bound, condition, body, scope, indices).run();
}

void add_conditions_of_factors(Arena& a, const std::map<TensorId, PointValue>& guards, const Product& body,
                               std::span<const AxisRange> bound, std::span<const AxisRange> scope, Id& condition) {
  std::vector<Id> known = ranges_as_conditions(a, bound);
  for (Id c : ranges_as_conditions(a, scope)) known.push_back(c);
  for (Id c : conjuncts(a, condition)) known.push_back(c);
  for (const Factor& f : body.factors) {
    const Node n = a[f.atom];
    auto guard = n.op == Op::read && f.halves > 0 ? guards.find(n.symbol) : guards.end();
    if (guard == guards.end()) continue;
    Replacements at;
    for (size_t i = 0; i < n.arg_count; ++i) at[guard->second.axes[i]] = a.to(DType::i64, n.arg(i));
    for (Id c : conjuncts(a, substitute(a, guard->second.value, at))) {
      if (!tensors_read(a, c).empty() || is_known(a, known, c)) continue;
      known.push_back(c);
      condition = is_true(a, condition) ? c : a.land(condition, c);
    }
  }
}

}  // namespace xhat
