#include "expr/index/affine_split.h"

#include <algorithm>

#include "expr/index/affine_scope.h"

namespace xhat::affine {
namespace {

constexpr int kMaxSplits = 8;  // of one question: an index of so many dimensions

// The axis at this place is q*divisor + r with q in 0..times and r in 0..divisor; below: of q*divisor + r, where its range ends
// before the last multiple.
struct Split {
  size_t axis;
  Poly divisor, times;
  bool ends_early;
};

class Splitter {
 public:
  Splitter(Arena& a, const BoundsQuestion& q)
      : a_(a), q_{{q.axes.begin(), q.axes.end()}, {q.conditions.begin(), q.conditions.end()}, q.index, q.extent} {}

  std::optional<OwnQuestion> run() {
    bool changed = false;
    for (int i = 0; i < kMaxSplits; ++i) {
      auto split = next();
      if (!split) break;
      apply(*split);
      changed = true;
    }
    if (!changed) return std::nullopt;
    leave_out_unused();
    return std::move(q_);
  }

 private:
  template <class F>
  void each(F&& f) {
    for (AxisRange& r : q_.axes) {
      f(r.begin);
      f(r.end);
    }
    for (Id& c : q_.conditions) f(c);
    f(q_.index);
    f(q_.extent);
  }

  // Of all divisors that an axis is divided by, the one of the lowest degree: it divides the others.
  std::optional<Split> next() {
    Scope scope(a_);
    for (const AxisRange& r : q_.axes) scope.bind(r);
    std::vector<Id> roots;
    each([&](Id& e) { roots.push_back(e); });
    std::optional<Split> best;
    auto degree = [](const Poly& p) {
      size_t d = 0;
      for (const auto& [m, c] : p.terms) d = std::max(d, m.size());
      return d;
    };
    for (Id id : reachable(a_, roots)) {
      const Node n = a_[id];
      if ((n.op != Op::div && n.op != Op::mod) || n.type != DType::i64 || !a_[n.arg(1)].free_axes().empty()) continue;
      const Poly divisor = scope.poly(n.arg(1));
      if (auto c = divisor.as_constant(); c && *c < 2) continue;
      const Poly dividend = scope.poly(n.arg(0));
      for (size_t i = 0; i < q_.axes.size(); ++i) {
        if (dividend.coefficient(q_.axes[i].axis) != 1) continue;
        auto split = split_by(scope, i, divisor);
        if (split && (!best || degree(divisor) < degree(best->divisor))) best = split;
      }
    }
    return best;
  }

  std::optional<Split> split_by(Scope& scope, size_t axis, const Poly& divisor) {
    if (!scope.poly(q_.axes[axis].begin).terms.empty()) return std::nullopt;
    const auto [times, rest] = divide(scope.poly(q_.axes[axis].end), divisor);
    // A divisor below 0 would leave the range empty, if there are times.
    const bool sound = scope.surely_nonnegative(times) || scope.surely_nonnegative(divisor);
    if (times.terms.empty() || !sound || !scope.surely_nonnegative(-rest)) return std::nullopt;
    return Split{axis, divisor, times, !rest.terms.empty()};
  }

  void apply(const Split& s) {
    const AxisRange whole = q_.axes[s.axis];
    std::vector<Id> taken;
    for (const AxisRange& r : q_.axes) taken.insert(taken.end(), {r.axis, r.begin, r.end});
    taken.insert(taken.end(), {q_.index, q_.extent});
    taken.insert(taken.end(), q_.conditions.begin(), q_.conditions.end());
    taken = all_axes(a_, taken);
    const Id divisor = expression(a_, s.divisor);
    const AxisRange high{a_.fresh_axis(whole.axis, taken), a_.integer(0), expression(a_, s.times)};
    taken.push_back(high.axis);
    const AxisRange low{a_.fresh_axis(whole.axis, taken), a_.integer(0), divisor};
    const Id position = a_.add(a_.mul(high.axis, divisor), low.axis);
    if (s.ends_early) q_.conditions.push_back(a_.binary(Op::lt, whole.axis, whole.end));
    const auto at = q_.axes.begin() + static_cast<std::ptrdiff_t>(s.axis);
    *at = high;
    q_.axes.insert(at + 1, low);
    units_.push_back(s.divisor);
    each([&](Id& e) { e = substitute(a_, e, {{whole.axis, position}}); });
    Scope scope(a_);
    for (const AxisRange& r : q_.axes) scope.bind(r);
    each([&](Id& e) { e = rewrite(a_, e, [&](Id id) { return divided(scope, id); }); });
  }

  // Of an axis that nothing names any more only whether it has a value counts: with 0..H*W, whether H and W are at least 1.
  void leave_out_unused() {
    Scope scope(a_);
    for (size_t i = q_.axes.size(); i-- > 0;) {
      const AxisRange r = q_.axes[i];
      bool used = false;
      each([&](Id& e) { used = used || std::ranges::count(a_[e].free_axes(), r.axis) > 0; });
      const Poly extent = scope.poly(r.end);
      const bool product = extent.terms.size() == 1 && extent.terms.begin()->second > 0;
      if (used || !product || !scope.poly(r.begin).terms.empty()) continue;
      const Monomial dims = extent.terms.begin()->first;
      if (std::ranges::any_of(dims, [&](Id x) { return a_[x].op != Op::dim; })) continue;
      q_.axes.erase(q_.axes.begin() + static_cast<std::ptrdiff_t>(i));
      for (Id dim : dims) q_.conditions.push_back(a_.binary(Op::le, a_.integer(1), dim));
    }
  }

  static bool inside(Scope& scope, const Poly& p, const Poly& extent) {
    const Interval i = scope.interval(p);
    return i.lo && i.hi && scope.surely_nonnegative(*i.lo) && scope.surely_nonnegative(extent - Poly::constant(1) - *i.hi);
  }

  // (q*D + r)/D is q, (q*D + r)%D is r; (q*K + r)/(M*K) is q/M.
  Id divided(Scope& scope, Id id) {
    const Node n = a_[id];
    if ((n.op != Op::div && n.op != Op::mod) || n.type != DType::i64) return id;
    const Poly dividend = scope.poly(n.arg(0)), divisor = scope.poly(n.arg(1));
    if (!scope.surely_nonnegative(divisor - Poly::constant(1))) return id;
    const bool quotient = n.op == Op::div;
    const auto [times, rest] = divide(dividend, divisor);
    if (inside(scope, rest, divisor)) return expression(a_, quotient ? times : rest);
    for (const Poly& unit : units_) {
      const auto [more, none] = divide(divisor, unit);
      const auto [units, below] = divide(dividend, unit);
      if (!none.terms.empty() || more == Poly::constant(1) || !inside(scope, below, unit)) continue;
      const Id part = divided(scope, a_.binary(n.op, expression(a_, units), expression(a_, more)));
      return quotient ? part : expression(a_, scope.poly(part) * unit + below);
    }
    if (times.terms.empty()) return id;
    const Id part = a_.binary(n.op, expression(a_, rest), n.arg(1));
    return quotient ? a_.add(expression(a_, times), part) : part;
  }

  Arena& a_;
  OwnQuestion q_;
  std::vector<Poly> units_;
};

}  // namespace

std::optional<OwnQuestion> split_positions(Arena& a, const BoundsQuestion& q) {
  try {
    return Splitter(a, q).run();
  } catch (const GaveUp&) {
    return std::nullopt;
  }
}

}  // namespace xhat::affine
