// What planning takes of long programs: counted in pairs of products compared and in nodes made, not timed. Before they
// were bounded, a chain of 12 products took seconds and one of 500 did not end.
#include <gtest/gtest.h>

#include <algorithm>

#include "bench/long_ops.h"
#include "cse/match/unify.h"
#include "cse/normalize/auto_inliner.h"
#include "cse/share/cse_optimizer.h"
#include "cse/share/sharing.h"
#include "tests/helpers/cse_helper.h"

namespace xhat::plan_growth_test {
namespace {

using testing::derived;

struct Growth {
  const char* name;
  std::string (*text)(int);
  int small;      // four times as many are planned, too
  int times = 5;  // as many pairs, at most
};

class PlanGrowth : public ::testing::TestWithParam<Growth> {};

TEST_P(PlanGrowth, FourTimesTheProgramFourTimesThePairs) {
  const Growth& g = GetParam();
  StashPlan small = plan_stash(derived(g.text(g.small))), large = plan_stash(derived(g.text(4 * g.small)));
  EXPECT_GT(small.compared, 0);
  EXPECT_LE(large.compared, g.times * small.compared);
}

// Of a row of norms, whose values are shared one after the other, more also take more rounds, up to their limit.
INSTANTIATE_TEST_SUITE_P(LongOps, PlanGrowth,
                         ::testing::Values(Growth{"sines", bench::chain_of_sines, 125}, Growth{"products", bench::chain_of_products, 60},
                                           Growth{"norms", bench::row_of_norms, 10, 7}, Growth{"layers", bench::residual_layers, 6}),
                         [](const auto& row) { return std::string(row.param.name); });

// Of the gradient of x: products that are looked at, and that a search for something to replace asks about.
std::pair<int64_t, int64_t> products_met(const std::string& text) {
  Program p = derived(text);
  Arena& a = *p.arena;
  TensorExprTree tree(a);
  Sharing sharing(tree, [](Id, Id) { return false; }, [](TensorId) { return false; },
                  [](const Product&, const Product&) { return true; }, [](Id) { return false; }, {});
  const Id body = p.definition_of(p.gradients[0])->body;
  std::pair<int64_t, int64_t> met = {0, 0};
  sharing.each_product(tree.form(body), [&](const Product&) { ++met.first; });
  Wanted all;
  for (Id id : reachable(a, body))
    if (is_read(a[id].op)) all.shapes.push_back(tree.shape(id));
  std::ranges::sort(all.shapes);
  sharing.everywhere(tree.form(body), all, [&](const Product& product) {
    ++met.second;
    return product;
  });
  return met;
}

TEST(PlanGrowthOfWork, FourTimesTheTowerFourTimesTheProducts) {
  auto small = products_met(bench::tower_of_powers(25)), large = products_met(bench::tower_of_powers(100));
  EXPECT_GT(small.first, 50);
  EXPECT_GT(small.second, 50);
  EXPECT_LE(large.first, 5 * small.first);
  EXPECT_LE(large.second, 5 * small.second);
}

// What the planner asks of every node of a long sum.
TEST(PlanGrowthOfWork, FourTimesTheTermsFourTimesTheNodes) {
  constexpr int64_t kDear_ps = 2000;
  auto visited = [&](const std::string& text) {
    Program p = derived(text);
    int64_t count = 0;
    for (const Definition& d : p.definitions())
      for (Id id : reachable(*p.arena, d.body)) {
        int64_t before = count;
        EXPECT_EQ(costs_at_least(*p.arena, id, kDear_ps, &count), evaluation_cost_ps(*p.arena, id) >= kDear_ps);
        EXPECT_GT(count, before);
      }
    return count;
  };
  for (auto text : {bench::sum_of_terms, bench::chain_of_sines}) EXPECT_LE(visited(text(800)), 5 * visited(text(200)));
}

// Within the limit every shared value is a candidate; beyond, the plan does not claim to be the best.
TEST(PlanLimits, OptimalWhereAllThatIsSharedWasACandidate) {
  for (int steps : {most_rounds_of_shares - 2, most_rounds_of_shares + 1, most_rounds_of_shares + 2, 60}) {
    SCOPED_TRACE(steps);
    Program before = derived(bench::chain_of_sines(steps));
    StashPlan plan = plan_stash(before);
    // The backward wants the value of every step but the last.
    EXPECT_EQ(plan.optimal, steps - 1 <= most_rounds_of_shares);
    EXPECT_EQ(plan.cost_ns, plan.lower_bound_ns);
    for (const ParetoPoint& point : pareto_front(before)) EXPECT_EQ(point.optimal, plan.optimal);
    testing::expect_same_values(before, plan.program);
  }
}

TEST(PlanLimits, ChainsOf500ArePlanned) {
  for (const std::string& text : {bench::chain_of_sines(500), bench::chain_of_products(250), bench::row_of_norms(30)}) {
    Program before = derived(text);
    StashPlan plan = plan_stash(before);
    verify(plan.program);
    EXPECT_FALSE(plan.optimal);
    EXPECT_FALSE(stashes(plan.program).empty());
    // Of values that are used many times, none is written out more than once.
    EXPECT_LE(plan.program.arena->size(), 10 * before.arena->size());
  }
}

// A value used twice by the next, 60 times: as a tree that is 2^60 nodes.
TEST(PlanLimits, SharedValuesAreMatchedOnce) {
  Program q = derived(bench::chain_of_products(60));
  const Definition& y = *q.definition_of(q.outputs[0]);
  Arena& a = *q.arena;
  TensorExprTree tree(a);
  Id i = y.axes[0].axis, j = a.axis("j");
  Replacements renamed = {{i, j}};
  Id pattern = a.unary(Op::exp, y.body), target = a.unary(Op::exp, substitute(a, y.body, renamed));
  auto found = Unifier(tree, {i}).atoms(tree.canonical(pattern), tree.canonical(target));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->at(i), j);
}

// What a layer shares with its backward does not depend on how many layers there are.
TEST(PlanLimits, EveryLayerIsPlannedAsTheFirst) {
  auto kept = [](int layers) {
    const StashPlan plan = plan_stash(derived(bench::residual_layers(layers)));
    EXPECT_TRUE(plan.optimal) << layers;
    return stashes(plan.program).size();
  };
  const size_t few = kept(2), more = kept(6), many = kept(14);
  EXPECT_GT(few, 4u);
  EXPECT_EQ((many - more) * 4, (more - few) * 8);
}

// Products beyond 32 factors are matched as others are.
TEST(PlanLimits, LongProductsUnderOtherAxes) {
  std::string factors, product;
  for (int k = 0; k < 80; ++k) {
    factors += ", a" + std::to_string(k) + ": f32[N]";
    product += (k > 0 ? " * " : "") + ("a" + std::to_string(k) + "[$]");
  }
  auto at = [&](const std::string& index) {
    std::string text = product;
    for (size_t p; (p = text.find('$')) != std::string::npos;) text.replace(p, 1, index);
    return text;
  };
  Program p = parse_op("op f(s: f32" + factors + ") -> (y, z) { y[i in 0..N] = exp(" + at("i") +
                       ")\n z[k in 0..N] = exp(" + at("N-1-k") + ") }");
  TensorExprTree tree(*p.arena);
  Id pattern = tree.canonical(p.definition_of(p.outputs[0])->body);
  Id target = tree.canonical(p.definition_of(p.outputs[1])->body);
  Id i = p.arena->axis("i");
  auto found = Unifier(tree, {i}).atoms(pattern, target);
  ASSERT_TRUE(found);
  EXPECT_EQ(print(p, tidy_index(*p.arena, found->at(i))), "N - 1 - k");
}

}  // namespace
}  // namespace xhat::plan_growth_test
