// Translates expressions to isl and back. Everything named (dims, axes, and each term that is no linear
// arithmetic: H*W, p/W, ids[b]) is a *parameter* of sets without dimensions, so that isl aligns whatever
// meets; whoever needs a set dimension moves the parameter there. What is known of a nonlinear term (0 <= e %
// D < D, bounds of i*W from the range of i) is collected in facts(), which makes the proofs about flattened
// and split indices linear.
#pragma once
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "expr/index/affine_isl.h"

namespace xhat::affine {

// Where a condition certainly holds, and where it may: they differ where it is out of reach (a float
// comparison).
struct Condition {
  Set must;
  Set may;
};

// Bounds of a term as polynomials over what does not depend on bound axes; none where not known.
struct Interval {
  std::optional<Poly> lo, hi;
};

// The hardest relation of the tests needs less than 100,000 of isl's operations, which take about 35 ms: a
// question ends after about 0.4 s.
constexpr unsigned long kIslOperations = 1'000'000;
// Of an index that data decide: it is checked in the run if nobody proves it, and that takes little.
constexpr unsigned long kIslOperationsForData = 30'000;

class Scope {
 public:
  explicit Scope(Arena& a, unsigned long operations = kIslOperations);

  // The axis runs over its range wherever the scope's facts are used. Ranges may use axes bound before.
  void bind(const AxisRange& range);

  const Poly& poly(Id integer_expression);
  Interval interval(const Poly& p);
  PwAff value(const Poly& p);
  Condition condition(Id bool_expression);
  Set inside(const AxisRange& range);  // begin <= axis < end
  Set nonnegative(const Poly& p);
  Set zero(const Poly& p);
  Set le(const Poly& x, const Poly& y) { return nonnegative(y - x); }
  Set lt(const Poly& x, const Poly& y) { return nonnegative(y - x - Poly::constant(1)); }
  Set eq(const Poly& x, const Poly& y) { return zero(y - x); }
  Set ne(const Poly& x, const Poly& y) { return complement(zero(y - x)); }

  bool surely_nonnegative(const Poly& p) const;
  bool surely_in(Id expression, const Poly& extent);  // 0 <= expression < extent
  // Does an opaque term (not an axis or a dim) stand in the expression's translation?
  bool has_opaque(Id expression);

  Set universe() const;
  Set facts();
  // The names of a set's parameters, in isl's order.
  std::vector<Monomial> parameters(const Set& s) const;
  int position(const Set& s, Id atom) const;  // -1: not a parameter of s

  // Back. Every integer division must be known (isl_set_compute_divs), else GaveUp.
  Poly poly_of(const Aff& aff);
  Id expression_of(const PwAff& value);  // at the points of its domain
  Id condition_of(const Set& set);

  Arena& arena() { return arena_; }
  isl_ctx* ctx() const { return context_.get(); }

 private:
  enum class Data : uint8_t { none, narrow, wide };  // reads tensor data; narrow: of types smaller than i64
  struct Entry {
    Poly poly;
    Data data = Data::none;
    std::optional<Condition> condition;
    int choices = 0;  // between data, one in the other, that isl has a form for
  };
  void translate(Id root);
  Entry translate_integer(Id id);
  Condition translate_bool(Id id);
  Entry opaque(Id id, Interval interval, Data data = Data::none);
  Entry structural(Id id, Interval interval, Data data);
  PwAff structure(Id id);
  Entry divided(Id id);
  Entry converted(Id id);
  Data data_of(std::span<const Id> args);
  Set division_fact(Id id);
  Interval interval_of_extreme(Op op, const Interval& x, const Interval& y) const;
  Interval interval_of_monomial(const Monomial& m);
  using Part = std::pair<Id, int64_t>;  // a structural atom and its coefficient
  Aff linear(const Poly& p, std::vector<Part>& structural);
  void meet(const Monomial& m);
  size_t parameter(const Monomial& m);
  void know_bounds(const Poly& term, const Interval& bounds);

  Arena& arena_;
  Context context_;
  Space space_;  // of all parameters so far, in the order of monomials_: isl need not align what is made of it
  // What is known, and what of it isl has been told so far: most questions are answered without.
  Set facts_;
  std::vector<Poly> nonnegative_facts_;
  std::vector<Id> division_facts_;
  std::unordered_map<Id, Entry> entries_;
  // Atoms that isl has a form for, e/4, min(e, f), ..., made when first used.
  std::unordered_map<Id, std::optional<PwAff>> structural_;
  std::unordered_map<Id, Interval> intervals_;
  std::map<std::tuple<Op, Poly, Poly>, Id>
      divisions_;  // opaque e/d and e%d: one atom however e and d are written
  std::map<Monomial, size_t> parameters_;
  std::vector<Monomial> monomials_;  // by the number in a parameter's isl name
  std::unordered_set<Id> nonnegative_, positive_;
};

}  // namespace xhat::affine
