// Does an expression keep the digits that another one of the same value has?
//
//   before  exp(x)/(1000 + exp(x))^2        after  y*(1 - 1000*y), y = 1/(1000 + exp(x)):  no, 1 - 1000*y cancels at x = 0
//   before  exp(x)/(1 + exp(x))^2           after  y*(1 - y),      y = 1/(1 + exp(x)):     yes
//
// The error of an expression at a point is the sum over its nodes of |d root / d node| times the rounding of that node: the
// first-order bound of running error analysis (Higham, Accuracy and Stability of Numerical Algorithms, chapter 3). Reads of
// the forward's maps are written out first, so that the error of what is stored counts as it comes about. `after` keeps the
// digits of `before` if at every point of a grid
//
//   error(after) <= most_amplification * (error(before) + rounding * scale)
//
// where scale is the largest value that `before` has as the arguments of exp, tanh and other functions with a scale of their
// own go to their constant terms: exp(x) and exp(2*x + 1) to x = 0. So 1 - y*y may stand for the derivative of tanh, which is as
// good as 0 where y rounds to 1. The grid has magnitudes from 1e-6 to 1e6 of either sign for each read.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "cse/match/tensor_expr_tree.h"
#include "expr/core/program.h"

namespace xhat {

// Of the error that the expression had. exp(-y) for y = log(x) and 1/x is off by |log(x)|, 30 for x of 1e13 or 1e-13.
constexpr double most_amplification = 32;

class Accuracy {
 public:
  // The program may change: forget() what its definitions were.
  Accuracy(const Program& p, TensorExprTree& tree) : p_(p), tree_(tree), a_(tree.arena()) {}
  bool keeps(Id before, Id after);
  // Squares, exponentials, their sums and products.
  bool nonnegative(Id expression);
  void forget() {
    written_out_.clear();
    stored_.reset();
    known_.clear();
    sums_.reset();
  }

 private:
  class Walk;
  // The expression with reads of maps replaced by what they are of inputs and reductions; values: these.
  Id written_out(Id expression, std::vector<Id>& values);
  bool is_stored(const Definition& map);

  const Program& p_;
  TensorExprTree& tree_;
  Arena& a_;
  std::map<TensorId, Id> written_out_;
  std::optional<std::set<TensorId>> stored_;
  std::optional<std::unordered_map<TensorId, Id>> sums_;  // of the forward: what they are
  std::map<std::pair<Id, Id>, bool> known_;
};

}  // namespace xhat
