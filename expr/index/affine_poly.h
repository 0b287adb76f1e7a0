// Polynomials with integer coefficients over nodes of an arena: the normal form of index arithmetic. What is
// linear in it goes to isl; what is not (H*W, i*W, symbolic divisors) is reasoned about here, with what is
// known of the signs.
//
// An atom is any integer node that is not itself a sum or product: an axis, a dim, e/4, ids[b], H/W, ...
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "expr/core/expr.h"

namespace xhat::affine {

// The question left the reach of this file or of isl's budget. Caught at affine's surface, where it means
// "unknown".
struct GaveUp {};

using Monomial = std::vector<Id>;  // ascending; the same atom twice is its square; empty: 1

// Canonical: no zero coefficients, so equal polynomials compare equal. Arithmetic that leaves 64 bits throws
// GaveUp.
struct Poly {
  std::map<Monomial, int64_t> terms;

  static Poly constant(int64_t c);
  static Poly atom(Id id);
  static Poly monomial(const Monomial& m, int64_t c);

  std::optional<int64_t> as_constant() const;
  int64_t constant_term() const;
  int64_t coefficient(Id atom) const;  // of the atom alone
  Poly without(Id atom) const;         // the term of the atom alone left out
  void add(const Monomial& m, int64_t c);
  auto operator<=>(const Poly&) const = default;
};
Poly operator+(const Poly& a, const Poly& b);
Poly operator-(const Poly& a, const Poly& b);
Poly operator*(const Poly& a, const Poly& b);
Poly operator-(const Poly& a);

// quotient and rest with p = quotient*d + rest, by long division from the largest terms down (no term of the
// rest is divisible by d's largest).
std::pair<Poly, Poly> divide(const Poly& p, const Poly& d);

// Is p >= 0 wherever the atoms satisfy: positive(atom) means atom >= 1, nonnegative(atom) means atom >= 0?
// May say no where it is.
using AtomTest = std::function<bool(Id)>;
bool surely_nonnegative(const Poly& p, const AtomTest& nonnegative, const AtomTest& positive);

// Of an i64 expression: its sums and products. What is left is an atom, as `atom` has it.
Poly polynomial(const Arena& a, Id e, const std::function<Poly(Id)>& atom);
// Divisions by numbers taken apart as well: (2*i + j)/2 is i + j/2, and e%2 is e - 2*(e/2).
Poly polynomial_through_divisions(Arena& a, Id e, const std::function<Poly(Id)>& atom);

// Back to nodes. Divisions first split off what divides exactly: (2*i + j + 2)/2 is i + j/2 + 1.
Id expression(Arena& a, const Poly& p);
Poly floor_div(Arena& a, const Poly& p, int64_t divisor);  // divisor > 0
Poly floor_mod(Arena& a, const Poly& p, int64_t divisor);
Id divisible(Arena& a, const Poly& p, int64_t divisor);  // bool: p % divisor == 0

}  // namespace xhat::affine
