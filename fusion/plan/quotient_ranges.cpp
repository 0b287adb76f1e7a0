#include "fusion/plan/quotient_ranges.h"

#include <algorithm>
#include <optional>

#include "expr/core/conditions.h"
#include "expr/index/linear.h"
#include "expr/rules/simplify.h"

namespace xhat {
namespace {

class Ranges {
 public:
  Ranges(Arena& a, const DimValues& sizes) : a_(a), sizes_(sizes) {}

  Id reduction(Id root) {
    const Node n = a_[root];
    if (!is_reduction(n.op) || n.op == Op::argmax || n.op == Op::argmin || is_true(a_, reduce_condition(n))) return root;
    std::vector<AxisRange> axes = reduce_axes(n);
    Id rest = kNone;
    bool changed = false;
    for (Id c : conjuncts(a_, reduce_condition(n))) {
      if (into_range(c, axes)) {
        changed = true;
        continue;
      }
      rest = rest == kNone ? c : a_.land(rest, c);
    }
    return changed ? a_.reduce(n.op, axes, rest, reduce_body(n)) : root;
  }

 private:
  bool has(Id id, Id axis) const { return std::ranges::binary_search(a_[id].free_axes(), axis); }

  // (times*axis + added) / divisor, rounded down.
  struct Quotient {
    int64_t times = 1, divisor = 1;
    Linear added;
  };

  std::optional<Quotient> quotient(Id e, Id axis) const {
    const Node& n = a_[e];
    if (n.op != Op::div || a_[n.arg(1)].op != Op::constant || a_[n.arg(1)].integer < 1) return {};
    Quotient q{0, a_[n.arg(1)].integer, linear(a_, n.arg(0))};
    for (auto [node, k] : q.added.terms)
      if (node == axis)
        q.times = k;
      else if (has(node, axis))
        return {};
    q.added.terms.erase(axis);
    return q.times > 0 ? std::optional(q) : std::nullopt;
  }

  // The condition as an end or a beginning of one of the ranges.
  bool into_range(Id condition, std::vector<AxisRange>& axes) {
    const Node c = a_[condition];
    if ((c.op != Op::lt && c.op != Op::le) || a_[c.arg(0)].type != DType::i64) return false;
    Replacements numbers;
    for (Id id : reachable(a_, condition))
      if (a_[id].op == Op::dim)
        numbers[id] = a_.integer(evaluate_extent(a_, id, sizes_));
      else if (is_read(a_[id].op))
        return false;
    const Node known = a_[simplify(a_, substitute(a_, condition, numbers))];
    if (known.op != c.op) return false;
    for (size_t i = 0; i < axes.size(); ++i) {
      AxisRange& r = axes[i];
      // Ranges to the right may depend on this one; those to the left are in scope where it begins.
      auto later = [&](Id e) {
        return std::ranges::any_of(std::span(axes).subspan(i), [&](const AxisRange& x) { return has(e, x.axis); });
      };
      for (size_t side = 0; side < 2; ++side) {
        const Id other = known.arg(1 - side);
        const auto q = quotient(known.arg(side), r.axis);
        if (!q || later(other) || std::ranges::any_of(q->added.terms, [&](auto& t) { return later(t.first); })) continue;
        // q <= other: times*axis <= divisor*(other + 1) - added - 1.  other <= q: times*axis >= divisor*other - added.
        Linear bound = linear(a_, other);
        const bool strict = known.op == Op::lt;
        if (side == 0 && !strict) bound.constant += 1;
        if (side == 1 && strict) bound.constant += 1;
        Linear scaled;
        add_scaled(scaled, bound, q->divisor);
        add_scaled(scaled, q->added, -1);
        scaled.constant += q->times - 1;  // rounded up
        const Id limit = a_.div(to_index(a_, scaled), a_.integer(q->times));
        if (side == 0)
          r.end = a_.binary(Op::minimum, r.end, limit);
        else
          r.begin = a_.binary(Op::maximum, r.begin, limit);
        return true;
      }
    }
    return false;
  }

  Arena& a_;
  const DimValues& sizes_;
};

}  // namespace

Program quotients_as_ranges(const Program& p, const DimValues& sizes) {
  Program made = p;
  Ranges ranges(*made.arena, sizes);
  for (Definition& d : made.forward.definitions)
    if (!d.is_call()) d.body = ranges.reduction(d.body);
  return made;
}

}  // namespace xhat
