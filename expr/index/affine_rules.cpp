// The rules for symbolic divisors. Each replaces an equation (or a pair) by equivalent ones; "equivalent" is
// meant for points whose bound axes and targets lie in their ranges, which the solver keeps testing beside
// them.
#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "expr/index/affine_scope.h"
#include "expr/index/affine_system.h"

namespace xhat::affine {
namespace {

// left of an equation as (base / divisor) % modulus. Nested divisions multiply; since / and % by 0 give 0,
// the identities hold for divisors 0 too.
struct Form {
  Id base;
  Poly divisor = Poly::constant(1);
  std::optional<Poly> modulus;
};

class Rules {
 public:
  Rules(Arena& a, System& s, std::span<const AxisRange> targets) : a_(a), s_(s), scope_(a) {
    for (const AxisRange& r : targets) scope_.bind(r);
    for (const AxisRange& r : s.axes) scope_.bind(r);
  }

  void run() {
    while (combine_pair()) {
    }
    for (size_t i = 0; i < s_.equations.size(); ++i)
      if (!roll(i) && !repeat(i) && !split_radix(i) && divide_symbolic(i)) --i;
  }

 private:
  Form form_of(Id e) {
    Form f{e, Poly::constant(1), {}};
    std::vector<Id> chain;  // outermost first
    while (a_[e].op == Op::div || a_[e].op == Op::mod) {
      chain.push_back(e);
      e = a_[e].arg(0);
    }
    f.base = e;
    for (size_t i = chain.size(); i-- > 0;) {
      const Node& n = a_[chain[i]];
      const Poly d = scope_.poly(n.arg(1));
      const bool plain = depends_on_bound(n.arg(1)) || !scope_.surely_nonnegative(d);
      const auto [q, rest] = f.modulus ? divide(*f.modulus, d) : std::pair(Poly{}, Poly{});
      if (plain || (f.modulus && !rest.terms.empty())) {
        f = {chain[i], Poly::constant(1), {}};
      } else if (n.op == Op::div) {
        f.divisor = f.divisor * d;
        if (f.modulus) f.modulus = q;
      } else {
        f.modulus = d;
      }
    }
    return f;
  }

  bool is_bound(Id axis) const {
    return std::any_of(s_.axes.begin(), s_.axes.end(), [&](const AxisRange& r) { return r.axis == axis; });
  }
  bool depends_on_bound(Id e) const {
    const auto axes = a_[e].free_axes();
    return std::any_of(axes.begin(), axes.end(), [&](Id x) { return is_bound(x); });
  }
  const AxisRange& range_of(Id axis) const {
    return *std::find_if(s_.axes.begin(), s_.axes.end(), [&](const AxisRange& r) { return r.axis == axis; });
  }
  bool runs_over(Id axis, const Poly& extent) {  // 0..extent
    const AxisRange& r = range_of(axis);
    return scope_.poly(r.begin).terms.empty() && scope_.poly(r.end) == extent;
  }
  // A bound axis with coefficient 1 or -1 that stands nowhere else in p.
  template <class Wanted>
  Id unit_axis(const Poly& p, Wanted wanted) {
    for (const auto& [m, c] : p.terms) {
      if (m.size() != 1 || (c != 1 && c != -1) || !is_bound(m[0]) || !wanted(m[0])) continue;
      if (!mentions(p.without(m[0]), m[0])) return m[0];
    }
    return kNone;
  }
  bool mentions(const Poly& p, Id axis) const {
    for (const auto& [m, c] : p.terms)
      for (Id atom : m) {
        const auto axes = a_[atom].free_axes();
        if (std::find(axes.begin(), axes.end(), axis) != axes.end()) return true;
      }
    return false;
  }

  bool combine_pair() {
    auto& eqs = s_.equations;
    for (size_t i = 0; i < eqs.size(); ++i) {
      const Form whole = form_of(eqs[i].left);
      if (whole.modulus || whole.divisor == Poly::constant(1)) continue;
      for (size_t j = 0; j < eqs.size(); ++j) {
        const Form part = form_of(eqs[j].left);
        if (i == j || part.base != whole.base || !part.modulus) continue;
        if (part.divisor * *part.modulus != whole.divisor) continue;
        if (!scope_.surely_in(eqs[j].right, *part.modulus)) continue;
        const Poly joined = scope_.poly(eqs[i].right) * *part.modulus + scope_.poly(eqs[j].right);
        Id left = part.base;
        if (part.divisor != Poly::constant(1)) left = a_.div(left, expression(a_, part.divisor));
        eqs[i] = {left, expression(a_, joined)};
        eqs.erase(eqs.begin() + static_cast<std::ptrdiff_t>(j));
        return true;
      }
    }
    return false;
  }

  // s - e % N == b  =>  e % N == s - b
  void isolate(size_t i) {
    Equation& e = s_.equations[i];
    const Poly left = scope_.poly(e.left);
    Id remainder = kNone;
    for (const auto& [m, c] : left.terms) {
      if (std::ranges::none_of(m, [&](Id atom) { return depends_on_bound(atom); })) continue;
      if (remainder != kNone || m.size() != 1 || (c != 1 && c != -1) || a_[m[0]].op != Op::mod) return;
      remainder = m[0];
    }
    if (remainder == kNone || remainder == e.left) return;
    const Form f = form_of(remainder);
    if (!f.modulus || f.modulus->as_constant()) return;
    const Poly rest = scope_.poly(e.right) - left.without(remainder);
    e = {remainder, expression(a_, left.coefficient(remainder) < 0 ? -rest : rest)};
  }

  // (u + s) % N == b  =>  u == (b - s) % N, where 0 <= b < N and u in 0..N: u is an axis, or all that the bound axes have a part in
  bool roll(size_t i) {
    isolate(i);
    Equation& e = s_.equations[i];
    const Form f = form_of(e.left);
    if (!f.modulus || f.divisor != Poly::constant(1)) return false;
    const Poly base = scope_.poly(f.base);
    const Id x = unit_axis(base, [&](Id axis) { return runs_over(axis, *f.modulus); });
    Poly turned, beside = base;
    if (x != kNone) {
      turned.add({x}, base.coefficient(x));
      beside = base.without(x);
    } else {
      std::tie(turned, beside) = by_bound(base);
      if (turned.terms.size() < 2) return false;
      if (!always_in(expression(a_, turned), expression(a_, *f.modulus))) return false;
    }
    if (!scope_.surely_in(e.right, *f.modulus)) {
      s_.conditions.push_back(a_.binary(Op::le, a_.integer(0), e.right));
      s_.conditions.push_back(a_.binary(Op::lt, e.right, expression(a_, *f.modulus)));
    }
    Poly to = scope_.poly(e.right) - beside;
    if (x != kNone && base.coefficient(x) < 0) turned = -turned, to = -to;
    const bool plain = to == scope_.poly(e.right);  // u % N == b with both in range
    e = {expression(a_, turned), plain ? e.right : a_.binary(Op::mod, expression(a_, to), expression(a_, *f.modulus))};
    return x != kNone;
  }

  bool always_in(Id index, Id extent) {  // 0 <= index < extent
    return prove_bounds(a_, {s_.axes, s_.conditions, index, extent}).verdict == BoundsAnswer::Verdict::proved;
  }

  // What of the sum has bound axes in it, and the rest.
  std::pair<Poly, Poly> by_bound(const Poly& p) const {
    Poly bound, other;
    for (const auto& [m, c] : p.terms) (std::ranges::any_of(m, [&](Id atom) { return depends_on_bound(atom); }) ? bound : other).add(m, c);
    return {bound, other};
  }

  // p % D == b  =>  p == k*D + b
  bool repeat(size_t i) {
    const Equation e = s_.equations[i];
    const Form f = form_of(e.left);
    if (!f.modulus || f.modulus->as_constant() || f.divisor != Poly::constant(1)) return false;
    if (!is_bound(f.base) || !scope_.surely_in(e.right, *f.modulus)) return false;
    const AxisRange r = range_of(f.base);
    const auto [times, rest] = divide(scope_.poly(r.end), *f.modulus);
    if (!scope_.poly(r.begin).terms.empty() || !rest.terms.empty()) return false;
    std::vector<Id> avoid = all_axes_here();
    avoid.insert(avoid.end(), s_.taken.begin(), s_.taken.end());
    const AxisRange k{a_.fresh_axis(f.base, avoid), a_.integer(0), expression(a_, times)};
    scope_.bind(k);
    const auto at = std::find(s_.axes.begin(), s_.axes.end(), r);
    s_.axes.insert(at, k);
    s_.equations[i] = {a_.sub(f.base, a_.mul(k.axis, expression(a_, *f.modulus))), e.right};
    return true;
  }

  std::vector<Id> all_axes_here() const {
    std::vector<Id> roots(s_.conditions);
    roots.insert(roots.end(), s_.inequalities.begin(), s_.inequalities.end());
    for (const Equation& e : s_.equations) roots.insert(roots.end(), {e.left, e.right});
    for (const AxisRange& r : s_.axes) roots.insert(roots.end(), {r.axis, r.begin, r.end});
    return all_axes(a_, roots);
  }

  // i*D + j == t  =>  j == t % D, i == t / D. Leaves the equation of i at index i, to be split again.
  bool split_radix(size_t i) {
    const Poly left = scope_.poly(s_.equations[i].left);
    const auto [bound, other] = by_bound(left);
    Poly extent, rest;
    const Id low = unit_axis(bound, [&](Id axis) {
      if (bound.coefficient(axis) != 1) return false;
      extent = scope_.poly(range_of(axis).end);
      if (extent.as_constant() || !runs_over(axis, extent)) return false;
      const auto [q, r] = divide(bound.without(axis), extent);
      rest = q;
      return r.terms.empty() && !q.terms.empty();
    });
    if (low == kNone) return false;
    const Poly to = scope_.poly(s_.equations[i].right) - other;
    const Id target = expression(a_, to), by = expression(a_, extent);
    s_.equations[i] = {expression(a_, rest), a_.div(target, by)};
    s_.equations.push_back({low, a_.binary(Op::mod, target, by)});
    split_radix(i);
    return true;
  }

  // e / D == a  =>  a*D <= e < a*D + D. True if equation i is gone.
  bool divide_symbolic(size_t i) {
    const Equation e = s_.equations[i];
    const Form f = form_of(e.left);
    if (f.modulus || f.divisor.as_constant() || !scope_.surely_nonnegative(f.divisor - Poly::constant(1)))
      return false;
    const Poly from = scope_.poly(e.right) * f.divisor;
    s_.inequalities.push_back(a_.binary(Op::le, expression(a_, from), a_.to(DType::i64, f.base)));
    s_.inequalities.push_back(a_.binary(Op::lt, a_.to(DType::i64, f.base), expression(a_, from + f.divisor)));
    s_.equations.erase(s_.equations.begin() + static_cast<std::ptrdiff_t>(i));
    return true;
  }

  Arena& a_;
  System& s_;
  // With the bound axes in their ranges: a divisor that would leave them empty counts as positive.
  Scope scope_;
};

// k*e - k*c*(e/c) becomes k*(e % c), where all of k*e stands in p (its constant may differ).
Poly with_remainders(Scope& scope, Poly p) {
  Arena& a = scope.arena();
  for (const auto& [m, c] : Poly(p).terms) {
    if (m.size() != 1 || a[m[0]].op != Op::div || p.coefficient(m[0]) != c) continue;
    const auto by = scope.poly(a[m[0]].arg(1)).as_constant();
    if (!by || *by <= 1 || c % *by != 0) continue;
    const int64_t times = -c / *by;
    const Poly e = scope.poly(a[m[0]].arg(0));
    const bool whole = std::all_of(e.terms.begin(), e.terms.end(), [&](const auto& term) {
      auto it = p.terms.find(term.first);
      return term.first.empty() || (it != p.terms.end() && it->second == times * term.second);
    });
    if (!whole) continue;
    p = p.without(m[0]) - Poly::constant(times) * e;
    p = p + Poly::monomial({a.binary(Op::mod, expression(a, e), a.integer(*by))}, times);
  }
  return p;
}

// (c*x + r) / (c*d) is x / d, where r is surely in 0..c.
Id shorter_division(Scope& scope, Id id) {
  Arena& a = scope.arena();
  const Node& n = a[id];
  if (n.op != Op::div || n.type != DType::i64 || a[n.arg(1)].op != Op::constant || a[n.arg(1)].integer <= 1) return id;
  const int64_t by = a[n.arg(1)].integer;
  const Poly p = with_remainders(scope, scope.poly(n.arg(0)));
  std::set<int64_t> factors;
  for (const auto& [m, c] : p.terms)
    if (const int64_t factor = std::gcd(c, by); factor > 1) factors.insert(factor);
  for (int64_t factor : factors) {
    Poly whole, rest;
    for (const auto& [m, c] : p.terms) c % factor == 0 ? whole.add(m, c / factor) : rest.add(m, c);
    if (!scope.surely_in(expression(a, rest), Poly::constant(factor))) continue;
    const Id left = expression(a, whole);
    return factor == by ? left : shorter_division(scope, a.div(left, a.integer(by / factor)));
  }
  return id;
}

}  // namespace

void apply_rules(Arena& a, System& system, std::span<const AxisRange> targets) {
  try {
    System rewritten = system;
    Rules(a, rewritten, targets).run();
    system = std::move(rewritten);
  } catch (const GaveUp&) {
    // The system stays as it was.
  }
}

Id tidy(Arena& a, Id e) {
  try {
    Scope scope(a);
    e = rewrite(a, e, [&](Id id) { return shorter_division(scope, id); });
    const Node& n = a[e];
    const bool comparison = n.op == Op::le || n.op == Op::lt || n.op == Op::eq;
    if (n.type == DType::i64) return expression(a, with_remainders(scope, scope.poly(e)));
    if (!comparison || !is_integer(a[n.arg(0)].type)) return e;
    const Poly f = with_remainders(scope, scope.poly(n.arg(1)) - scope.poly(n.arg(0)));
    Poly left, right;
    for (const auto& [m, c] : f.terms) (c > 0 ? right : left).add(m, c > 0 ? c : -c);
    return a.binary(n.op, expression(a, left), expression(a, right));
  } catch (const GaveUp&) {
    return e;
  }
}

}  // namespace xhat::affine
