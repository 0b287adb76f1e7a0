// Matching up to axes: is the target an instance of the pattern, if the pattern's axes are replaced by
// index expressions of the target?
//
//   pattern exp(x[n,d] - m[n]),  target exp(x[b,C-1-c] - m[b])   =>   n := b, d := C-1-c
//
// Both sides are in the normal form of a TensorExprTree. An index i+1, C-1-c or 2*i of the pattern is solved for
// its axis, if what it is to equal allows it; of 8*g + k, against 8*(b+1) + j, each axis by its coefficient. Sums and
// products have no order: what can stand for what is told by its shape (TensorExprTree::shape), and only where that leaves
// several ways are they tried (backtracking, up to a fixed number of steps). Nothing is asked twice on one way, so that a
// value used in many places is compared once.
#pragma once
#include <map>
#include <set>

#include "cse/match/tensor_expr_tree.h"
#include "expr/index/linear.h"

namespace xhat {

constexpr int kDeepest = 1000;  // nesting of functions; beyond, expressions are left alone

using Binding = std::map<Id, Id>;  // pattern axis -> index expression of the target

class Unifier {
 public:
  // axes: the pattern's. Others in the pattern must stand in the target as they are.
  Unifier(TensorExprTree& tree, std::set<Id> axes) : tree_(tree), axes_(std::move(axes)) {}

  // The first binding, extending `from`, under which the atoms (any nodes) are equal.
  std::optional<Binding> atoms(Id pattern, Id target, const Binding& from = {});
  // Every way (up to a limit) to pair all factors of both with equal exponents. Coefficients are not
  // compared. either_sign: differences, and odd functions of them, may stand for each other turned round, x[i] - x[j] for x[j] - x[i]; the
  // caller asks what sign that gives. Below even functions and in squares they always may.
  std::vector<Binding> products(const Product& pattern, const Product& target, bool either_sign = false);
  // Every way (up to a limit) in which each of the pattern's factors is contained in one of the target's:
  // an exponent of the same sign that is at least as large. either_sign: as above.
  std::vector<Binding> contained(std::span<const Factor> pattern, std::span<const Factor> target, const Binding& from = {},
                                 bool either_sign = false);
  // `from`, and what makes these indices equal, pattern and target: of $t + 1 against t + 1, $t := t. None if nothing does.
  std::optional<Binding> indices(std::span<const std::pair<Id, Id>> pairs, const Binding& from);

 private:
  class Search;

  bool has_axes(Id pattern) const;

  TensorExprTree& tree_;
  std::set<Id> axes_;
  struct Answer {
    std::optional<Binding> first;
    bool only;  // is there no other?
  };
  std::map<std::pair<Id, Id>, Answer> atoms_;  // asked before
};

}  // namespace xhat
