// The terms of a weighted prefix sum taken apart: what depends on the term alone, on the result alone, and a weight that carries a sum from
// one position to the next.
//
//   sum(k in 0..i+1: a[i] * d^(i-k) * x[k])       outer a[i], term x[k], weight from k to i: d^(i-k)
//   sum(k in 0..i+1: exp(-a*(i-k)) * x[k])        term x[k], weight exp(-a*(i-k)), not exp(-a)^(i-k), which would be off by i-k roundings
//   sum(k in 0..i: exp(x[k] - b*(i-1-k)))         term exp(x[k]), weight exp(-b*(i-1-k)), if b is not negative for sure
//   sum(k in 0..i+1: exp(x[k] - m[i]))            with m the prefix maximum of x: term exp(x[k] - m[k]), weight exp(m[k] - m[i])
//   sum(i in k..N if x[k] == m[i]: g[i])          outer [x[k] == m[k]], term g[i], weight [m[i] == m[k]]
//
// A weight from k to i is the product of those from k to j and from j to i, whatever j between them. Of exponentials it must not exceed 1, so
// that nothing overflows that the sum as written does not: the exponent has to fall with the distance, which is proved from the definitions
// of what it reads (prefix maxima, prefix sums of what has one sign).
#pragma once
#include <optional>
#include <vector>

#include "expr/core/program.h"
#include "expr/index/dims.h"

namespace xhat::fusion {

struct PairWeight {
  enum class Kind : uint8_t {
    power,        // base^(rate * distance)
    exponential,  // exp(base * rate * distance)
    potential,    // exp(level at the result - level at the term)
    same          // level at the result == level at the term
  } kind;
  Id base = kNone;
  int64_t rate = 0;
  Id level = kNone;  // in terms of the result's axis

  bool of_distance() const { return kind == Kind::power || kind == Kind::exponential; }
  // The weight of so many places times the rate: base^number or exp(base * number).
  Id over(Arena& a, Id number) const;
};

struct PairTerm {
  Id term = kNone;   // in terms of the reduction's axis
  Id outer = kNone;  // in terms of the result's axis; kNone: 1
  std::vector<PairWeight> weights;
};

// The body of a sum over `term`, of which the result has the axis `result`, where term <= result, or term >= result if suffix. Both run over
// the same positions. nearest: how far the nearest term is from its result, k in 0..i: 1; the term has what weights of the distance are there.
// None: it cannot be taken apart, or does not depend on both.
std::optional<PairTerm> pair_term(const Program& p, const DimValues& sizes, Id body, Id condition, Id result, Id term, bool suffix,
                                  int64_t nearest);

}  // namespace xhat::fusion
