// The normal form of float expressions: a number times a product of atoms with rational exponents (halves),
// where an atom is a read, a dim as a number, a function of normalised operands, a select, or a whole sum
// of products.
//
//   gamma*(x-mean)/sqrt(var+eps) + beta   =>   sum{ gamma^1 (x-mean)^1 (var+eps)^-1/2 ,  beta^1 }
//
// So x̂ is no subtree of the left side but a sub-product of the right one. A sum keeps no factor that all
// its terms share (a*b + a*c is a*(b+c)), and is never multiplied out: expand() does that, for proofs. A product that gets
// long stands as one atom in larger ones, so that a chain of n multiplications has n factors, not n².
// Real-only: association, cancellation and (x^2)^1/2-like identities hold for numbers, not for floats;
// never apply it to a forward definition that the user wrote. Bool and integer expressions are atoms as
// they stand: what decides a branch keeps its bits. So do operands of floor, ceil, round, trunc, %, copysign and the like, which jump
// where the last bit changes: x[i64(floor(p))] and p - floor(p) are one position and its fraction in the backward only if both floor the same bits.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "expr/core/expr.h"

namespace xhat {

struct Factor {
  Id atom;
  int halves;  // twice the exponent, never 0
  bool operator==(const Factor&) const = default;
  auto operator<=>(const Factor&) const = default;
};

// coefficient * atom^(halves/2) * ...; atoms ascending and distinct. Coefficient 0 has no factors.
struct Product {
  double coefficient = 1;
  std::vector<Factor> factors;
  bool is_zero() const { return coefficient == 0; }
  bool is_number() const { return factors.empty(); }
  bool operator==(const Product&) const = default;
};

class TensorExprTree {
 public:
  explicit TensorExprTree(Arena& arena) : a_(arena) {}
  Arena& arena() { return a_; }

  // By value: a map of forms grows while its entries are looked at.
  Product form(Id expression);
  // Back to an expression, cheap to evaluate: factors grouped by the axes they depend on, fewest first, so
  // that what is invariant in an inner loop is one contiguous sub-expression with at most one division per
  // group.
  Id to_expression(const Product& p, DType type);
  // The expression in normal form; bool and integer expressions are returned as they are.
  Id canonical(Id expression);

  // The terms of an atom that is a sum, else none.
  const std::vector<Product>* terms(Id atom) const;
  // The factors of an atom that is a long product, else none.
  const Product* factors(Id atom) const;
  // sum of the terms
  Product add(DType type, std::vector<Product> terms);
  Product multiply(const Product& x, const Product& y);
  // p becomes p * y^(halves/2).
  void multiply_in(Product& p, const Product& y, int halves = 2);
  void multiply_in(Product& p, const Factor& f);
  Product power(const Product& x, int halves);
  Product atom(Id id) { return {1, {{id, 2}}}; }
  // Terms of the product multiplied out, like terms collected; none if there would be more than limit.
  std::optional<std::vector<Product>> expand(const Product& p, size_t limit);

  std::vector<Id> free_axes(const Product& p) const;  // ascending
  // Equal for products that differ in axis names and index expressions only: for bucketing, and for
  // choosing the sign of a sum, which must not depend on names.
  uint64_t key(const Product& p);
  uint64_t key(Id atom);
  // Equal for whatever unify can match, found once for each node: what differs here need not be compared. Unlike key, also
  // for indices that differ in more than names (i+1 and C-1-c), and it knows the order of operands and the signs.
  uint64_t shape(const Product& p);
  uint64_t shape(Id node);
  // The form of an expression, to look at while forms are added.
  const Product& known_form(Id expression);

 private:
  Product compute(Id id);
  Product from_dims(DType type, Id id, int depth);
  std::optional<double> value_at(Id id, Id x, double number, int depth) const;
  Product where_equal(const Node& condition, const Product& p);
  std::optional<Product> without_exponentials(DType type, const Product& p);
  Product root(const Product& x, int halves);
  bool mostly_divides(const Product& p);
  Product sum_of(DType type, std::vector<Product> terms);
  bool choose_once(DType type, std::vector<Product>& terms);
  bool reflect_once(std::vector<Product>& terms);
  bool cancel_once(DType type, std::vector<Product>& terms);
  bool divide_once(std::vector<Product>& terms);
  bool compare_once(DType type, std::vector<Product>& terms);
  std::optional<Product> as_one_choice(DType type, const Product& s, const Product& t, Id x, Id y);
  Product by_outcome(const Product& p, Id x, Id y, int outcome);
  Id sum_expression(DType type, const std::vector<Product>& terms);
  Product joined(DType type, const Product& x, const Product& y);
  Product as_atom(DType type, const Product& p);
  Id raised(Id atom, int halves);
  void put(Product& p, Id atom, int halves);
  bool positive(Id atom) const;
  double settled(double number);
  void note_opposite(Id atom);
  bool meets_opposite(Product& p, const Factor& f);
  bool has_exponential(Id atom) const;

  Arena& a_;
  std::unordered_map<Id, Product> forms_;
  std::unordered_map<Id, std::vector<Product>> sums_;
  std::unordered_map<Id, Product> long_;
  std::unordered_map<Id, uint64_t> keys_;
  std::unordered_map<Id, uint64_t> shapes_;
  using ChoicesKey = std::tuple<DType, Id, Id, uint64_t, uint64_t>;        // two choices and the bits of their coefficients
  std::map<ChoicesKey, Product> choices_;                                  // their sum as one choice
  std::unordered_map<Id, Product> kept_;                                   // products that stand under a root as one atom
  std::set<double> numbers_;                                               // in atoms
  std::map<std::tuple<Op, double, std::vector<Factor>>, Id> of_argument_;  // exp, sigmoid and softplus of a product
  std::unordered_map<Id, Id> opposite_;                                    // f(u) and f(-u) of these, either way
  // Two terms with coefficients, and what is compared; their sum as one choice, if it is one.
  using ComparedKey = std::tuple<DType, uint64_t, std::vector<Factor>, uint64_t, std::vector<Factor>, Id, Id>;
  std::map<ComparedKey, std::optional<Product>> compared_;
};

// Of floats: the value is a whole number, the one that the operand is rounded to.
bool rounds_to_whole(Op op);
// Of floats: the value jumps where an operand changes by its last bit. So operands stay as they are written: x - x is 0 for any x that is computed
// in one way, and a sum of the same terms in another order is not.
bool jumps(Op op);
// Is the sum of coefficients that cancel up to rounding.
bool negligible(double sum, double largest);
// May the operands be exchanged?
bool commutes(const Node& n);

}  // namespace xhat
