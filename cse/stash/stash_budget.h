// The cheapest choices that keep at most so many bytes, and the whole exchange of bytes against time: exact.
//
// With a price on bytes it is a minimum cut again (stash_cut.h), whose cost less the price of the budget bounds every
// choice within the budget. The best such price gives the convex hull of the exchange. What lies between two corners of
// the hull is found by branch and bound: a value that one corner keeps and the other does not is kept for certain in one
// half and for certain not in the other, and each half has its own best price.
#pragma once
#include "cse/stash/stash_cut.h"

namespace xhat {

// Halves looked at, at most, for one budget, each a handful of cuts: under a second for the largest graphs.
constexpr int most_explored(std::size_t nodes) {
  return nodes <= 100 ? 2000 : static_cast<int>(200'000 / nodes);
}

struct BudgetCut : Cut {
  int explored = 0;      // halves
  bool optimal = false;  // else lower_bound_ps is what the limit left time to prove
};

// Cost kNever: no choice keeps so few; bytes are then the fewest possible.
BudgetCut cheapest_cut_within(const std::vector<CutNode>& nodes, int64_t bytes, int limit);
inline BudgetCut cheapest_cut_within(const std::vector<CutNode>& nodes, int64_t bytes) {
  return cheapest_cut_within(nodes, bytes, most_explored(nodes.size()));
}

// Dearer and dearer choices that keep less and less: along the front, strictly fewer bytes mean strictly more time.
// Begins with the cheapest of all, ends with the fewest bytes. Each is what cheapest_cut_within(its bytes) returns, and
// without a point in between unless it has less than 1/most_points of the range of bytes fewer than its neighbour.
std::vector<BudgetCut> pareto_cuts(const std::vector<CutNode>& nodes, int64_t most_points = 256);

}  // namespace xhat
