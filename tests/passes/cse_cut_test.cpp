// The cuts against every possible choice, on random graphs.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "cse/stash/stash_budget.h"

namespace xhat::cse_cut_test {
namespace {

constexpr size_t kMaxCandidates = 12;

enum class Shape : uint8_t { sparse, dense, chain, diamonds };

// Prices of 0, ties (few distinct prices), values that cannot be recomputed or not be kept, values without bytes.
std::vector<CutNode> random_nodes(std::mt19937& random) {
  auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  auto shape = static_cast<Shape>(below(4));
  int prices = below(2) ? 4 : 30;
  std::vector<CutNode> nodes(1 + static_cast<size_t>(below(kMaxCandidates)));
  for (size_t v = 0; v < nodes.size(); ++v) {
    CutNode& n = nodes[v];
    n.keep_ps = below(12) ? below(prices) : kNever;
    n.bytes = below(3) ? below(20) : 0;
    n.recompute_ps = v == 0 || below(6) == 0 ? kNever : below(prices);
    n.needed = below(4) == 0 || v + 1 == nodes.size();
    switch (shape) {
      case Shape::sparse:
      case Shape::dense:
        for (size_t u = 0; u < v; ++u)
          if (below(shape == Shape::dense ? 2 : 5) == 0) n.operands.push_back(u);
        break;
      case Shape::chain:
        if (v > 0) n.operands = {v - 1};
        break;
      case Shape::diamonds:  // 0 -> 1, 2 -> 3 -> 4, 5 -> 6 ...
        if (v > 0 && v % 3 == 0)
          n.operands = {v - 2, v - 1};
        else if (v > 0)
          n.operands = {v - v % 3};
        break;
    }
  }
  return nodes;
}

// By bytes: the least that a choice of exactly these bytes costs.
std::vector<int64_t> brute_force(const std::vector<CutNode>& nodes) {
  std::vector<int64_t> cheapest(20 * kMaxCandidates, kNever);
  std::vector<bool> keep(nodes.size());
  for (size_t subset = 0; subset < size_t{1} << nodes.size(); ++subset) {
    for (size_t v = 0; v < nodes.size(); ++v) keep[v] = subset >> v & 1;
    Cut c = consequences(nodes, keep);
    int64_t& least = cheapest[static_cast<size_t>(c.bytes)];
    least = std::min(least, c.cost_ps);
  }
  return cheapest;
}

TEST(CseCut, AgreesWithBruteForceWithAndWithoutABudget) {
  std::mt19937 random(20);
  int impossible = 0, unmet = 0, front_points = 0, branched = 0;
  for (int round = 0; round < 3000; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    std::vector<CutNode> nodes = random_nodes(random);
    std::vector<int64_t> cheapest = brute_force(nodes);
    int64_t best = *std::ranges::min_element(cheapest);
    Cut cut = cheapest_cut(nodes);
    ASSERT_EQ(cut.cost_ps, best);
    ASSERT_EQ(cut.lower_bound_ps, best);

    std::vector<std::pair<int64_t, int64_t>> front;  // bytes, cost
    int64_t within = kNever;
    for (size_t bytes = 0; bytes < cheapest.size(); ++bytes)
      if (cheapest[bytes] < within) {
        within = cheapest[bytes];
        front.insert(front.begin(), {static_cast<int64_t>(bytes), within});
      }
    std::vector<BudgetCut> points = pareto_cuts(nodes, 1000);
    ASSERT_EQ(points.size(), front.size());
    for (size_t i = 0; i < front.size(); ++i) {
      ASSERT_EQ(points[i].bytes, front[i].first);
      ASSERT_EQ(points[i].cost_ps, front[i].second);
      ASSERT_TRUE(points[i].optimal);
      // Its own budget returns it.
      BudgetCut again = cheapest_cut_within(nodes, front[i].first);
      ASSERT_EQ(again.bytes, front[i].first);
      ASSERT_EQ(again.cost_ps, front[i].second);
      branched += again.explored > 1;
    }
    impossible += front.empty();
    front_points += static_cast<int>(front.size());

    for (int64_t budget :
         {int64_t{0}, static_cast<int64_t>(random() % 40), static_cast<int64_t>(random() % 200)}) {
      int64_t least = *std::min_element(cheapest.begin(), cheapest.begin() + budget + 1);
      BudgetCut limited = cheapest_cut_within(nodes, budget);
      ASSERT_EQ(limited.cost_ps, least) << "budget " << budget;
      if (least == kNever) {
        ++unmet;
        if (!front.empty()) {
          ASSERT_EQ(limited.bytes, front.back().first);
        }
        continue;
      }
      ASSERT_LE(limited.bytes, budget);
      ASSERT_TRUE(limited.optimal);
      ASSERT_EQ(limited.lower_bound_ps, limited.cost_ps);
    }
  }
  // The graphs asked everything.
  EXPECT_GT(impossible, 100);
  EXPECT_GT(unmet, 100);
  EXPECT_GT(front_points, 5000);
  EXPECT_GT(branched, 500);
}

// Values that have nothing to do with each other: a knapsack, which dynamic programming solves.
struct Knapsack {
  std::vector<CutNode> nodes;
  explicit Knapsack(size_t size, unsigned seed) : nodes(size) {
    std::mt19937 random(seed);
    for (CutNode& n : nodes) {
      n.bytes = 1 + static_cast<int64_t>(random() % 50);
      n.keep_ps = static_cast<int64_t>(random() % 100);
      n.recompute_ps = n.keep_ps + static_cast<int64_t>(random() % 1000);
      n.needed = true;
    }
  }
  int64_t best(int64_t budget) const {
    std::vector<int64_t> cost(static_cast<size_t>(budget) + 1, 0);
    for (const CutNode& n : nodes)
      for (auto b = budget; b >= 0; --b) {
        int64_t& here = cost[static_cast<size_t>(b)];
        here += n.recompute_ps;
        if (b >= n.bytes) here = std::min(here, cost[static_cast<size_t>(b - n.bytes)] + n.keep_ps);
      }
    return cost.back();
  }
};

TEST(CseBudget, ExactFarBeyondWhatCanBeEnumeratedInFewSteps) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    Knapsack k(80, seed);
    BudgetCut cut = cheapest_cut_within(k.nodes, 700);
    EXPECT_EQ(cut.cost_ps, k.best(700)) << "seed " << seed;
    EXPECT_TRUE(cut.optimal);
    EXPECT_LE(cut.explored, 1500) << "seed " << seed;  // of 2^80
  }
}

TEST(CseBudget, BeyondTheLimitTheBoundIsGiven) {
  int unproved = 0;
  for (unsigned seed = 0; seed < 10; ++seed) {
    Knapsack k(80, seed);
    BudgetCut cut = cheapest_cut_within(k.nodes, 700, 1);
    EXPECT_LE(cut.explored, 1);
    EXPECT_LE(cut.bytes, 700);
    EXPECT_LE(cut.lower_bound_ps, k.best(700));
    EXPECT_GE(cut.cost_ps, k.best(700));
    EXPECT_EQ(cut.optimal, cut.lower_bound_ps == cut.cost_ps);
    unproved += !cut.optimal;
  }
  EXPECT_GT(unproved, 5);
}

// As many values as a deep network has, each of a few near ones: the answer keeps within the budget, and its bound is below
// what any price on bytes finds.
TEST(CseBudget, ADeepGraph) {
  std::mt19937 random(7);
  std::vector<CutNode> nodes(500);
  for (size_t v = 0; v < nodes.size(); ++v) {
    CutNode& n = nodes[v];
    n.bytes = 1 << random() % 20;
    n.keep_ps = 180 * n.bytes;
    n.recompute_ps = v == 0 ? kNever : static_cast<int64_t>(random() % 400) * n.bytes;
    n.needed = v % 2 == 1;
    for (size_t u = v > 5 ? v - 5 : 0; u < v; ++u)
      if (random() % 3 == 0) n.operands.push_back(u);
  }
  Cut free = cheapest_cut(nodes);
  BudgetCut cut = cheapest_cut_within(nodes, free.bytes / 2);
  EXPECT_LE(cut.bytes, free.bytes / 2);
  EXPECT_LE(cut.explored, most_explored(nodes.size()));
  EXPECT_GE(cut.cost_ps, cut.lower_bound_ps);
  EXPECT_GT(cut.lower_bound_ps, free.cost_ps);
  EXPECT_LT(static_cast<double>(cut.cost_ps - cut.lower_bound_ps), 1e-3 * static_cast<double>(cut.cost_ps));
}

// The front of many points: no two nearer than a most_points-th of the range, but at its end.
TEST(CseBudget, ALongFrontIsThinnedOut) {
  Knapsack k(18, 1);
  std::vector<BudgetCut> all = pareto_cuts(k.nodes, 100000), few = pareto_cuts(k.nodes, 10);
  EXPECT_GT(all.size(), 40u);
  EXPECT_LE(few.size(), 12u);
  EXPECT_EQ(few.front().cost_ps, all.front().cost_ps);
  EXPECT_EQ(few.back().bytes, all.back().bytes);
  for (const BudgetCut& point : few) {
    auto same = [&](const BudgetCut& x) { return x.bytes == point.bytes && x.cost_ps == point.cost_ps; };
    EXPECT_TRUE(std::ranges::any_of(all, same));
  }
}

}  // namespace
}  // namespace xhat::cse_cut_test
