#include "fusion/plan/quotient_ranges.h"

#include <algorithm>
#include <optional>

#include "expr/core/conditions.h"
#include "expr/index/hull.h"
#include "expr/index/linear.h"
#include "expr/rules/simplify.h"

namespace xhat {
namespace {

class QuotientRanges {
 public:
  QuotientRanges(Arena& a, const DimValues& sizes, const std::vector<AxisRange>& outer) : a_(a), sizes_(sizes) {
    for (const AxisRange& r : outer) ranges_[r.axis] = r;
  }

  Id reduction(Id root) {
    const Node n = a_[root];
    if (!is_reduction(n.op) || n.op == Op::argmax || n.op == Op::argmin || is_true(a_, reduce_condition(n))) return root;
    std::vector<AxisRange> axes = reduce_axes(n);
    for (const AxisRange& r : axes) ranges_[r.axis] = r;
    Id rest = kNone;
    bool changed = false;
    for (Id c : conjuncts(a_, reduce_condition(n))) {
      if (into_range(c, axes)) {
        changed = true;
        continue;
      }
      rest = rest == kNone ? c : a_.land(rest, c);
    }
    return changed ? from_zero(a_.reduce(n.op, axes, rest, reduce_body(n))) : root;
  }

 private:

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
      else if (a_[node].depends_on(axis))
        return {};
    q.added.terms.erase(axis);
    return q.times > 0 ? std::optional(q) : std::nullopt;
  }

  // The condition as an end or a beginning of one of the ranges.
  bool into_range(Id condition, std::vector<AxisRange>& axes) {
    const Node c = a_[condition];
    if ((c.op != Op::lt && c.op != Op::le && c.op != Op::eq) || a_[c.arg(0)].type != DType::i64) return false;
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
        return std::ranges::any_of(std::span(axes).subspan(i), [&](const AxisRange& x) { return a_[e].depends_on(x.axis); });
      };
      for (size_t side = 0; side < 2; ++side) {
        const Id other = known.arg(1 - side);
        const auto q = quotient(known.arg(side), r.axis);
        if (!q || later(other) || std::ranges::any_of(q->added.terms, [&](auto& t) { return later(t.first); })) continue;
        // The first place of the axis where times*axis + added >= divisor*(other + more): the end for `less`, the beginning for `at least`.
        auto limit = [&](int64_t more) {
          Linear bound = linear(a_, other), scaled;
          bound.constant += more;
          add_scaled(scaled, bound, q->divisor);
          add_scaled(scaled, q->added, -1);
          scaled.constant += q->times - 1;  // rounded up
          return q->times == 1 ? to_index(a_, scaled) : a_.div(to_index(a_, scaled), a_.integer(q->times));
        };
        const bool equal = known.op == Op::eq, strict = known.op == Op::lt;
        const AxisRange old = r;
        if (equal || side == 0) {
          const Id end = limit(strict ? 0 : 1);
          r.end = within(end, old) ? end : a_.binary(Op::minimum, old.end, end);
        }
        if (equal || side == 1) {
          const Id begin = limit(strict ? 1 : 0);
          r.begin = within(begin, old) ? begin : a_.binary(Op::maximum, old.begin, begin);
        }
        return true;
      }
    }
    return false;
  }

  // Of 8*(c/4)..8*(c/4)+8 the place in it: what is read is a product again.
  Id from_zero(Id root) {
    const Node n = a_[root];
    std::vector<AxisRange> axes = reduce_axes(n);
    Replacements places;
    for (AxisRange& r : axes) {
      if (is_constant(a_, r.begin, 0)) continue;
      Linear length = linear(a_, r.end);
      add_scaled(length, linear(a_, r.begin), -1);
      if (!length.terms.empty()) continue;
      places[r.axis] = a_.add(r.begin, r.axis);
      r = {r.axis, a_.integer(0), a_.integer(length.constant)};
    }
    if (places.empty()) return root;
    for (AxisRange& r : axes)
      if (!places.contains(r.axis)) r.begin = substitute(a_, r.begin, places), r.end = substitute(a_, r.end, places);
    return a_.reduce(n.op, axes, substitute(a_, reduce_condition(n), places), substitute(a_, reduce_body(n), places));
  }

  // Does the limit lie in the range, ends included, wherever the other axes are?
  bool within(Id limit, const AxisRange& r) {
    const auto box = Hull(a_, ranges_).box({r.axis, limit, a_.add(limit, a_.integer(1))});
    if (!box || !a_[r.begin].free_axes().empty() || !a_[r.end].free_axes().empty()) return false;
    return evaluate_extent(a_, box->begin, sizes_) >= evaluate_extent(a_, r.begin, sizes_) &&
           evaluate_extent(a_, box->end, sizes_) - 1 <= evaluate_extent(a_, r.end, sizes_);
  }

  Arena& a_;
  const DimValues& sizes_;
  Ranges ranges_;
};

}  // namespace

Program with_numbers_as_divisors(const Program& p, const DimValues& sizes) {
  Program made = p;
  Arena& a = *made.arena;
  for (Definition& d : made.forward.definitions) {
    if (d.is_call()) continue;
    d.body = rewrite(a, d.body, [&](Id id) {
      const Node n = a[id];
      if ((n.op != Op::div && n.op != Op::mod) || n.type != DType::i64) return id;
      const Node& by = a[n.arg(1)];
      if (by.op == Op::constant || !by.free_axes().empty() || !tensors_read(a, n.arg(1)).empty()) return id;
      return a.binary(n.op, n.arg(0), a.integer(evaluate_extent(a, n.arg(1), sizes)));
    });
  }
  return made;
}

Program quotients_as_ranges(const Program& p, const DimValues& sizes) {
  Program made = p;
  for (Definition& d : made.forward.definitions)
    if (!d.is_call()) d.body = QuotientRanges(*made.arena, sizes, d.axes).reduction(d.body);
  return made;
}

}  // namespace xhat
