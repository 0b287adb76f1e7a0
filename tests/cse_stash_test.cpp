// The cut against every possible choice; and what the policies keep of plain definitions.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "cse/cse_optimizer.h"
#include "cse/reduction_algebra.h"
#include "cse/stash_cut.h"
#include "cse/stash_planner.h"
#include "tests/cse_helper.h"

namespace xhat {
namespace {

using testing::backward_nodes;
using testing::backward_reductions;
using testing::derived;
using testing::derived_op;
using testing::expect_same_values;
using Policy = StashOptions::Policy;

std::vector<CutNode> random_nodes(std::mt19937& random) {
  auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  std::vector<CutNode> nodes(static_cast<size_t>(2 + below(9)));
  for (size_t v = 0; v < nodes.size(); ++v) {
    CutNode& n = nodes[v];
    n.keep_ps = below(30);
    n.bytes = below(3) ? below(20) : 0;
    n.recompute_ps = v == 0 || below(5) == 0 ? kNever : below(20);
    n.needed = below(3) == 0 || v + 1 == nodes.size();
    for (size_t u = 0; u < v; ++u)
      if (below(3) == 0) n.operands.push_back(u);
  }
  return nodes;
}

TEST(CseCut, AgreesWithBruteForce) {
  std::mt19937 random(20);
  for (int round = 0; round < 400; ++round) {
    std::vector<CutNode> nodes = random_nodes(random);
    int64_t budget = static_cast<int64_t>(random() % 40);
    int64_t best = kNever, within = kNever;
    for (size_t subset = 0; subset < size_t{1} << nodes.size(); ++subset) {
      std::vector<bool> keep(nodes.size());
      for (size_t v = 0; v < nodes.size(); ++v) keep[v] = subset >> v & 1;
      Cut c = consequences(nodes, keep);
      best = std::min(best, c.cost_ps);
      if (c.bytes <= budget) within = std::min(within, c.cost_ps);
    }
    Cut cut = cheapest_cut(nodes);
    ASSERT_EQ(cut.cost_ps, best) << "round " << round;
    ASSERT_EQ(cut.lower_bound_ps, best) << "round " << round;
    if (within == kNever) {
      ASSERT_THROW(cheapest_cut_within(nodes, budget), Error) << "round " << round;
    } else {
      Cut limited = cheapest_cut_within(nodes, budget);
      ASSERT_EQ(limited.cost_ps, within) << "round " << round << " budget " << budget;
      ASSERT_LE(limited.bytes, budget);
      ASSERT_LE(limited.lower_bound_ps, limited.cost_ps);
    }
  }
}

class CseStash : public ::testing::TestWithParam<testing::PlainOp> {};

TEST_P(CseStash, EveryPolicyKeepsTheValues) {
  Program before = derived(GetParam().text);
  for (Policy policy : {Policy::none, Policy::largest, Policy::cost})
    for (bool drop : {false, true}) {
      SCOPED_TRACE("policy " + std::to_string(static_cast<int>(policy)) + (drop ? ", nothing stays" : ""));
      StashOptions options;
      options.policy = policy;
      if (drop) options.kept_by_caller.emplace();
      StashPlan plan = plan_stash(before, options);
      verify(plan.program);
      expect_same_values(before, plan.program);
      EXPECT_GE(plan.cost_ns, plan.lower_bound_ns);
      if (policy == Policy::cost) {
        EXPECT_TRUE(plan.optimal);
      }
      if (policy == Policy::none && !drop) {
        EXPECT_TRUE(stashes(plan.program).empty()) << print(plan.program);
      }
      // Without anything at the caller's, the backward may read stashes and cotangents only.
      if (!drop) continue;
      for (const Definition& d : plan.program.body.definitions)
        if (d.direction == Direction::backward)
          for (TensorId t : tensors_read(*plan.program.arena, d.body)) {
            EXPECT_NE(plan.program.tensors[t].role, Role::input) << print(plan.program);
            EXPECT_EQ(std::ranges::count(plan.program.outputs, t), 0) << print(plan.program);
          }
    }
}

INSTANTIATE_TEST_SUITE_P(Ops, CseStash, ::testing::ValuesIn(testing::plain_ops()),
                         [](const auto& of) { return of.param.name; });

// The largest rank among the stashes.
size_t stash_rank(const Program& p) {
  size_t rank = 0;
  for (TensorId t : stashes(p)) rank = std::max(rank, p.tensors[t].shape.size());
  return rank;
}

StashPlan planned(const std::string& op, Policy policy = Policy::cost) {
  StashOptions options;
  options.policy = policy;
  return plan_stash(derived_op(op), options);
}

TEST(CseStashPlan, WhatTheOutputTellsIsNotStashed) {
  for (const char* op : {"tanh", "sigmoid", "softmax", "log_softmax", "relu", "linear_sigmoid"})
    for (Policy policy : {Policy::cost, Policy::largest}) {
      StashPlan plan = planned(op, policy);
      EXPECT_TRUE(stashes(plan.program).empty()) << print(plan.program);
    }
}

TEST(CseStashPlan, TanhIsNotEvaluatedAgain) {
  StashPlan plan = planned("tanh");
  EXPECT_EQ(backward_nodes(plan.program, Op::tanh), 0);
  EXPECT_EQ(testing::body_of(plan.program, "grad_x"), "dy[n,d] * (1 - y[n,d] * y[n,d])");
}

TEST(CseStashPlan, SigmoidHoweverSpelledNeedsItsOutput) {
  StashPlan plan = planned("sigmoid");
  EXPECT_EQ(backward_nodes(plan.program, Op::exp), 0) << print(plan.program);
  EXPECT_EQ(backward_nodes(plan.program, Op::div), 0) << print(plan.program);
}

TEST(CseStashPlan, SoftmaxNeedsOneSumAndItsOutput) {
  StashPlan plan = planned("softmax");
  EXPECT_EQ(backward_reductions(plan.program), 1);
  EXPECT_EQ(backward_nodes(plan.program, Op::exp), 0) << print(plan.program);
  EXPECT_EQ(backward_nodes(plan.program, Op::div), 0) << print(plan.program);
}

TEST(CseStashPlan, NormsKeepVectorsUnderCost) {
  for (const char* op : {"layer_norm", "batch_norm", "rms_norm"}) {
    StashPlan plan = planned(op);
    EXPECT_EQ(stash_rank(plan.program), 1u) << print(plan.program);
    EXPECT_LE(stashes(plan.program).size(), 2u) << print(plan.program);
  }
}

TEST(CseStashPlan, BatchNormKeepsXHatUnderLargest) {
  StashPlan plan = planned("batch_norm", Policy::largest);
  int full = 0;
  std::string text;
  for (TensorId t : stashes(plan.program))
    if (plan.program.tensors[t].shape.size() == 4) {
      ++full;
      text = testing::body_of(plan.program, plan.program.tensors[t].name);
    }
  EXPECT_EQ(full, 1) << print(plan.program);
  EXPECT_NE(text.find("sqrt"), std::string::npos) << text;
  EXPECT_NE(text.find("x[n,c,h,w] - "), std::string::npos) << text;
  EXPECT_EQ(text.find("gamma"), std::string::npos) << text;
  // x itself is not read again.
  EXPECT_EQ(print(plan.program).substr(print(plan.program).find("} backward")).find(" x["),
            std::string::npos);
  EXPECT_EQ(backward_reductions(plan.program), 2);
}

TEST(CseStashPlan, ReversedUseMatches) {
  StashPlan plan = planned("reversed", Policy::largest);
  EXPECT_EQ(backward_nodes(plan.program, Op::tanh), 0) << print(plan.program);
  EXPECT_EQ(stash_rank(plan.program), 2u);
}

TEST(CseStashPlan, DroppedInputsAreKeptIfNeeded) {
  StashOptions options;
  options.dropped = {"x"};
  StashPlan plan = plan_stash(derived_op("gelu"), options);
  EXPECT_EQ(plan.stash_bytes, 4 * 64);
  for (const Definition& d : plan.program.body.definitions)
    if (d.direction == Direction::backward) {
      for (TensorId t : tensors_read(*plan.program.arena, d.body))
        EXPECT_NE(plan.program.tensors[t].name, "x");
    }
  options.dropped = {"z"};
  EXPECT_THROW(plan_stash(derived_op("gelu"), options), Error);
}

TEST(CseStashPlan, ABudgetIsMet) {
  StashOptions options;
  options.policy = Policy::budget;
  Program op = derived_op("layer_norm");
  StashPlan free = planned("layer_norm");
  options.budget = free.stash_bytes / 2;
  StashPlan plan = plan_stash(op, options);
  EXPECT_LE(plan.stash_bytes, options.budget);
  EXPECT_GE(plan.cost_ns, free.cost_ns);
  expect_same_values(op, plan.program);
  options.budget = 0;
  EXPECT_EQ(plan_stash(op, options).stash_bytes, 0);
}

TEST(CseStashPlan, EqualQuestionsEqualAnswers) {
  for (const testing::PlainOp& op : testing::plain_ops())
    EXPECT_EQ(print(plan_stash(derived(op.text)).program), print(plan_stash(derived(op.text)).program));
}

TEST(CseStashPlan, AnOperandOfTwoMatrixProductsIsComputedOnce) {
  StashPlan plan = planned("mlp");
  EXPECT_EQ(backward_nodes(plan.program, Op::tanh), 1) << print(plan.program);
  EXPECT_EQ(backward_reductions(plan.program), 5);
}

TEST(CseStashPlan, ConditionsOfSumsReadTheOutput) {
  StashPlan plan = planned("conv2d");
  EXPECT_TRUE(stashes(plan.program).empty()) << print(plan.program);
  EXPECT_EQ(backward_nodes(plan.program, Op::relu), 0) << print(plan.program);
}

TEST(CseStashPlan, AttentionReadsItsOutput) {
  StashPlan plan = planned("attention");
  EXPECT_EQ(backward_reductions(plan.program), 5) << print(plan.program);
  EXPECT_NE(print(plan.program).find("* o[b,i,d])"), std::string::npos) << print(plan.program);
}

TEST(CseStashPlan, WhatDecidesABranchIsNotRecomputed) {
  Program p = derived(
      "op f(x: f32[N,D]) -> (y) {\n s[n] = sum(d: x[n,d])\n y[n,d] = if x[n,d] > s[n] then x[n,d]^3 else 0 "
      "}");
  StashPlan plan = plan_stash(p);
  ASSERT_EQ(stashes(plan.program).size(), 1u) << print(plan.program);
  EXPECT_EQ(plan.program.tensors[stashes(plan.program)[0]].name, "s");
}

}  // namespace
}  // namespace xhat
