// Matching up to axes: is the target an instance of the pattern, if the pattern's axes are replaced by
// index expressions of the target?
//
//   pattern exp(x[n,d] - m[n]),  target exp(x[b,C-1-c] - m[b])   =>   n := b, d := C-1-c
//
// Both sides are in the normal form of a TensorExprTree. An index i+1 or C-1-c of the pattern is solved for
// its axis. Sums and products have no order, so their parts are tried in all of them (backtracking, up to a
// fixed number of steps).
#pragma once
#include <map>
#include <set>

#include "cse/tensor_expr_tree.h"

namespace xhat {

using Binding = std::map<Id, Id>;  // pattern axis -> index expression of the target

class Unifier {
 public:
  // axes: the pattern's. Others in the pattern must stand in the target as they are.
  Unifier(TensorExprTree& tree, std::set<Id> axes) : tree_(tree), axes_(std::move(axes)) {}

  // The first binding, extending `from`, under which the atoms (any nodes) are equal.
  std::optional<Binding> atoms(Id pattern, Id target, const Binding& from = {});
  // Every way (up to a limit) to pair all factors of both with equal exponents. Coefficients are not
  // compared.
  std::vector<Binding> products(const Product& pattern, const Product& target);
  // Every way (up to a limit) in which each of the pattern's factors is contained in one of the target's:
  // an exponent of the same sign that is at least as large.
  std::vector<Binding> contained(std::span<const Factor> pattern, std::span<const Factor> target,
                                 const Binding& from = {});

 private:
  struct Goal {
    enum class Kind : uint8_t { node, factors, terms, contained } kind;
    Id pattern = kNone, target = kNone;
    std::vector<Factor> pattern_factors = {}, target_factors = {};
    std::vector<Product> pattern_terms = {}, target_terms = {};
    double sign = 1;
  };
  struct State {
    std::vector<Goal> goals;
    std::vector<std::pair<Id, Id>> later;  // indices to solve once simpler ones have bound axes
    Binding binding;
  };
  // A look ahead that makes no states: false where the atoms cannot be equal under any binding.
  bool possible(Id pattern, Id target, int depth = 0);
  std::vector<Binding> solve(State start, size_t wanted);
  // Works off the last goal: false if it cannot hold, else pushes the ways on (none pushed: s itself
  // continues).
  bool step(State& s, std::vector<State>& branches);
  bool step_node(State& s, Id pattern, Id target, std::vector<State>& branches);
  bool indices(State& s);
  bool has_axes(Id pattern) const;

  TensorExprTree& tree_;
  std::set<Id> axes_;
};

// A linear form of integers: nodes with coefficients, and a constant.
struct Linear {
  std::map<Id, int64_t> terms;
  int64_t constant = 0;
  bool operator==(const Linear&) const = default;
};
Linear linear(const Arena& a, Id index);
Id to_index(Arena& a, const Linear& l);
// The index with its linear parts collected: C-1-(C-1-c) is c.
Id tidy_index(Arena& a, Id index);

}  // namespace xhat
