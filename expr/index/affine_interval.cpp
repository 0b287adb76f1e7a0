// What is known of the sizes of terms, as polynomials in dims: the facts that make flattened and split
// indices linear.
//   i in 0..H, W >= 0  =>  0 <= i*W <= H*W - W          p in 0..H*W, W >= 1  =>  p/W <= H - 1
#include <algorithm>

#include "expr/index/affine_scope.h"

namespace xhat::affine {

bool Scope::surely_nonnegative(const Poly& p) const {
  return affine::surely_nonnegative(
      p, [&](Id id) { return nonnegative_.contains(id); }, [&](Id id) { return positive_.contains(id); });
}

bool Scope::surely_in(Id expression, const Poly& extent) {
  const Interval i = interval(poly(expression));
  return i.lo && i.hi && surely_nonnegative(*i.lo) && surely_nonnegative(extent - Poly::constant(1) - *i.hi);
}

void Scope::bind(const AxisRange& range) {
  Interval i{interval(poly(range.begin)).lo, interval(poly(range.end)).hi};
  if (i.hi) i.hi = *i.hi - Poly::constant(1);
  if (i.lo && surely_nonnegative(*i.lo)) {
    nonnegative_.insert(range.axis);
    // The axis has a value, so end >= 1; if the end is c*H*W - k, both H and W are at least 1.
    if (i.hi && i.hi->terms.size() <= 2 && i.hi->constant_term() < 0) {
      for (const auto& [m, c] : i.hi->terms) {
        const bool all = std::all_of(m.begin(), m.end(), [&](Id id) { return nonnegative_.contains(id); });
        if (m.empty() || c < 0 || !all) continue;
        for (Id atom : m)
          if (positive_.insert(atom).second) nonnegative_facts_.push_back(Poly::atom(atom) - Poly::constant(1));
      }
    }
  }
  intervals_[range.axis] = i;
  for (size_t k = 0; k < monomials_.size();
       ++k) {  // products of it that were met before (by index: it may grow)
    const Monomial m = monomials_[k];
    if (m.size() > 1 && std::find(m.begin(), m.end(), range.axis) != m.end())
      know_bounds(Poly::monomial(m, 1), interval_of_monomial(m));
  }
}

Interval Scope::interval_of_monomial(const Monomial& m) {
  Interval r{Poly::constant(1), Poly::constant(1)};
  for (Id atom : m) {
    translate(atom);
    auto it = intervals_.find(atom);
    const Interval x = it == intervals_.end() ? Interval{} : it->second;
    if (!x.lo || !x.hi || !r.lo || !r.hi) return {};
    if (surely_nonnegative(*r.lo) && surely_nonnegative(*x.lo)) {
      r = {*r.lo * *x.lo, *r.hi * *x.hi};
    } else if (*x.lo == *x.hi && surely_nonnegative(*x.lo)) {
      r = {*r.lo * *x.lo, *r.hi * *x.lo};
    } else if (*r.lo == *r.hi && surely_nonnegative(*r.lo)) {
      r = {*x.lo * *r.lo, *x.hi * *r.lo};
    } else if (*x.lo == *x.hi && *r.lo == *r.hi) {
      r = {*r.lo * *x.lo, *r.lo * *x.lo};
    } else {
      return {};
    }
  }
  return r;
}

Interval Scope::interval(const Poly& p) {
  Interval r{Poly{}, Poly{}};
  for (const auto& [m, c] : p.terms) {
    Interval t = interval_of_monomial(m);
    if (c < 0) std::swap(t.lo, t.hi);
    r.lo = r.lo && t.lo ? std::optional(*r.lo + Poly::constant(c) * *t.lo) : std::nullopt;
    r.hi = r.hi && t.hi ? std::optional(*r.hi + Poly::constant(c) * *t.hi) : std::nullopt;
  }
  return r;
}

Interval Scope::interval_of_extreme(Op op, const Interval& x, const Interval& y) const {
  // smaller(p, q): a bound that is <= both, 0 if that is all the signs tell; nothing if both are needed and they tell nothing.
  auto pick = [&](const std::optional<Poly>& p, const std::optional<Poly>& q, bool smaller,
                  bool one_suffices) -> std::optional<Poly> {
    if (p && q) {
      if (surely_nonnegative(*q - *p)) return smaller ? p : q;
      if (surely_nonnegative(*p - *q)) return smaller ? q : p;
      if (smaller && !one_suffices && surely_nonnegative(*p) && surely_nonnegative(*q)) return Poly{};
    }
    if (!one_suffices) return std::nullopt;
    return p ? p : q;
  };
  if (op == Op::minimum) return {pick(x.lo, y.lo, true, false), pick(x.hi, y.hi, true, true)};
  if (op == Op::maximum) return {pick(x.lo, y.lo, false, true), pick(x.hi, y.hi, false, false)};
  return {pick(x.lo, y.lo, true, false), pick(x.hi, y.hi, false, false)};  // either of the two
}

}  // namespace xhat::affine
