// Polynomials over nodes: arithmetic, exact division, signs, and writing them back as expressions.
#include "expr/index/affine_poly.h"

#include <algorithm>
#include <numeric>

namespace xhat::affine {
namespace {

// Terms beyond this are no index anybody writes; the atom's expansion would only cost time.
constexpr size_t kMaxTerms = 64;

int64_t checked_add(int64_t a, int64_t b) {
  int64_t r = 0;
  if (__builtin_add_overflow(a, b, &r)) throw GaveUp{};
  return r;
}

int64_t checked_mul(int64_t a, int64_t b) {
  int64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r)) throw GaveUp{};
  return r;
}

int64_t floor_quotient(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }

Monomial product(const Monomial& a, const Monomial& b) {
  Monomial r;
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(r));
  return r;
}

// By degree, then lexicographic: compatible with products, which long division needs.
bool larger(const Monomial& a, const Monomial& b) {
  return a.size() != b.size() ? a.size() > b.size() : a > b;
}

// a/b where b's atoms are all among a's.
std::optional<Monomial> quotient(const Monomial& a, const Monomial& b) {
  if (!std::includes(a.begin(), a.end(), b.begin(), b.end())) return std::nullopt;
  Monomial r;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(r));
  return r;
}

Id term_expression(Arena& a, const Monomial& m, int64_t c) {  // c > 0
  Id r = kNone;
  if (c != 1 || m.empty()) r = a.integer(c);
  for (Id atom : m) r = r == kNone ? a.to(DType::i64, atom) : a.mul(r, a.to(DType::i64, atom));
  return r;
}

}  // namespace

Poly Poly::constant(int64_t c) { return monomial({}, c); }
Poly Poly::atom(Id id) { return monomial({id}, 1); }

Poly Poly::monomial(const Monomial& m, int64_t c) {
  Poly p;
  p.add(m, c);
  return p;
}

std::optional<int64_t> Poly::as_constant() const {
  if (terms.empty()) return 0;
  if (terms.size() == 1 && terms.begin()->first.empty()) return terms.begin()->second;
  return std::nullopt;
}

int64_t Poly::constant_term() const {
  auto it = terms.find({});
  return it == terms.end() ? 0 : it->second;
}

int64_t Poly::coefficient(Id id) const {
  auto it = terms.find({id});
  return it == terms.end() ? 0 : it->second;
}

Poly Poly::without(Id id) const {
  Poly p = *this;
  p.terms.erase({id});
  return p;
}

void Poly::add(const Monomial& m, int64_t c) {
  if (c == 0) return;
  auto [it, fresh] = terms.try_emplace(m, c);
  if (!fresh) it->second = checked_add(it->second, c);
  if (it->second == 0) terms.erase(it);
  if (terms.size() > kMaxTerms) throw GaveUp{};
}

Poly operator+(const Poly& a, const Poly& b) {
  Poly r = a;
  for (const auto& [m, c] : b.terms) r.add(m, c);
  return r;
}

Poly operator-(const Poly& a) { return Poly::constant(-1) * a; }
Poly operator-(const Poly& a, const Poly& b) { return a + -b; }

Poly operator*(const Poly& a, const Poly& b) {
  Poly r;
  for (const auto& [m, c] : a.terms)
    for (const auto& [n, d] : b.terms) r.add(product(m, n), checked_mul(c, d));
  return r;
}

std::pair<Poly, Poly> divide(const Poly& p, const Poly& d) {
  if (d.terms.empty()) return {{}, p};
  auto lead = d.terms.begin();
  for (auto it = d.terms.begin(); it != d.terms.end(); ++it)
    if (larger(it->first, lead->first)) lead = it;
  Poly quot, rest, left = p;
  while (!left.terms.empty()) {
    auto top = left.terms.begin();
    for (auto it = left.terms.begin(); it != left.terms.end(); ++it)
      if (larger(it->first, top->first)) top = it;
    const auto m = quotient(top->first, lead->first);
    const Poly term = Poly::monomial(top->first, top->second);
    if (m && top->second % lead->second == 0) {
      const Poly q = Poly::monomial(*m, top->second / lead->second);
      quot = quot + q;
      left = left - q * d;
    } else {
      rest = rest + term;
      left = left - term;
    }
  }
  return {quot, rest};
}

bool surely_nonnegative(const Poly& p, const AtomTest& nonnegative, const AtomTest& positive) {
  Poly shifted;  // with 1 + a for every positive a
  for (const auto& [m, c] : p.terms) {
    Poly term = Poly::constant(c);
    for (Id atom : m)
      term = term * (positive(atom) ? Poly::atom(atom) + Poly::constant(1) : Poly::atom(atom));
    shifted = shifted + term;
  }
  for (const auto& [m, c] : shifted.terms) {
    if (c < 0) return false;
    for (size_t i = 0; i < m.size(); ++i) {
      if (nonnegative(m[i]) || positive(m[i])) continue;
      if (i + 1 < m.size() && m[i + 1] == m[i])
        ++i;  // a square
      else
        return false;
    }
  }
  return true;
}

Id expression(Arena& a, const Poly& p) {
  const int64_t constant = p.constant_term();
  Id r = kNone;
  for (const auto& [m, c] : p.terms) {
    if (m.empty() || c < 0) continue;
    const Id t = term_expression(a, m, c);
    r = r == kNone ? t : a.add(r, t);
  }
  const bool leading_constant = r == kNone && (constant > 0 || p.terms.empty());
  if (leading_constant) r = a.integer(constant);
  for (const auto& [m, c] : p.terms) {
    if (m.empty() || c > 0) continue;
    if (r == kNone && c == -1 && m.size() == 1) {
      r = a.unary(Op::neg, a.to(DType::i64, m[0]));
    } else {
      const Id t = term_expression(a, m, r == kNone ? 1 : checked_mul(c, -1));
      r = r == kNone ? a.mul(a.integer(c), t) : a.sub(r, t);
    }
  }
  if (leading_constant || constant == 0) return r;
  if (r == kNone) return a.integer(constant);
  return constant > 0 ? a.add(r, a.integer(constant)) : a.sub(r, a.integer(checked_mul(constant, -1)));
}

Poly floor_div(Arena& a, const Poly& p, int64_t divisor) {
  if (divisor == 1) return p;
  Poly exact, rest;
  for (const auto& [m, c] : p.terms) {
    if (m.empty()) continue;
    (c % divisor == 0 ? exact : rest).add(m, c % divisor == 0 ? c / divisor : c);
  }
  // floor((g*A + k) / (g*d)) = floor((A + floor(k/g)) / d)
  int64_t g = divisor;
  for (const auto& [m, c] : rest.terms) g = std::gcd(g, c);
  const int64_t constant = floor_quotient(p.constant_term(), g);
  const int64_t d = divisor / g;
  exact.add({}, floor_quotient(constant, d));
  if (rest.terms.empty()) return exact;
  for (auto& [m, c] : rest.terms) c /= g;
  rest.add({}, constant - d * floor_quotient(constant, d));
  const bool negative = std::all_of(rest.terms.begin(), rest.terms.end(),
                                    [](const auto& t) { return t.first.empty() || t.second < 0; });
  if (!negative) return exact + Poly::atom(a.div(expression(a, rest), a.integer(d)));
  // floor(-x/d) = -floor((x + d-1)/d), and -x is nothing one writes
  return exact - Poly::atom(a.div(expression(a, Poly::constant(d - 1) - rest), a.integer(d)));
}

Poly floor_mod(Arena& a, const Poly& p, int64_t divisor) {
  Poly reduced;
  for (const auto& [m, c] : p.terms) reduced.add(m, c - divisor * floor_quotient(c, divisor));
  if (reduced.as_constant()) return reduced;
  return Poly::atom(a.binary(Op::mod, expression(a, reduced), a.integer(divisor)));
}

Poly polynomial(const Arena& a, Id e, const std::function<Poly(Id)>& atom) {
  const Node& n = a[e];
  const Id left = n.arg_count > 0 ? n.arg(0) : kNone, right = n.arg_count > 1 ? n.arg(1) : kNone;
  switch (n.op) {
    case Op::constant: return Poly::constant(n.integer);
    case Op::add: return polynomial(a, left, atom) + polynomial(a, right, atom);
    case Op::sub: return polynomial(a, left, atom) - polynomial(a, right, atom);
    case Op::neg: return -polynomial(a, left, atom);
    case Op::mul: return polynomial(a, left, atom) * polynomial(a, right, atom);
    default: return atom(e);
  }
}

Poly polynomial_through_divisions(Arena& a, Id e, const std::function<Poly(Id)>& atom) {
  return polynomial(a, e, [&](Id x) {
    const Node n = a[x];
    const bool divides = (n.op == Op::div || n.op == Op::mod) && a[n.arg(1)].op == Op::constant && a[n.arg(1)].integer > 0;
    if (!divides) return atom(x);
    const int64_t d = a[n.arg(1)].integer;
    const Poly dividend = polynomial_through_divisions(a, n.arg(0), atom), quotient = floor_div(a, dividend, d);
    return n.op == Op::div ? quotient : dividend - Poly::constant(d) * quotient;
  });
}

Id divisible(Arena& a, const Poly& p, int64_t divisor) {
  const Poly rest = floor_mod(a, p, divisor);
  if (auto c = rest.as_constant()) return a.boolean(*c == 0);
  return a.eq(expression(a, rest), a.integer(0));
}

}  // namespace xhat::affine
