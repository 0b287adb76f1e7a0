// What the policies keep of plain definitions. The cut itself: cse_cut_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ad/check/random_inputs.h"
#include "cse/algebra/reduction_algebra.h"
#include "cse/share/cse_optimizer.h"
#include "cse/stash/stash_planner.h"
#include "cse/stash/stash_reason.h"
#include "expr/index/dims.h"
#include "tests/helpers/cse_helper.h"

namespace xhat::cse_stash_test {
namespace {

using testing::backward_nodes;
using testing::backward_reductions;
using testing::derived;
using testing::derived_op;
using testing::expect_same_values;
using Policy = StashOptions::Policy;

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
      for (const Definition& d : plan.program.backward.definitions)
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
  for (const Definition& d : plan.program.backward.definitions)
    for (TensorId t : tensors_read(*plan.program.arena, d.body)) EXPECT_NE(plan.program.tensors[t].name, "x");
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

TEST(CseStashPlan, TheFrontIsMonotoneAndBudgetsReturnIt) {
  size_t longest = 0;
  for (const testing::PlainOp& op : testing::plain_ops())
    for (bool drop : {false, true}) {
      SCOPED_TRACE(op.name + (drop ? ", nothing stays" : ""));
      Program p = derived(op.text);
      StashOptions options;
      if (drop) options.kept_by_caller.emplace();
      std::vector<ParetoPoint> front = pareto_front(p, options);
      ASSERT_FALSE(front.empty());
      longest = std::max(longest, front.size());
      EXPECT_EQ(front[0].cost_ns, plan_stash(p, options).cost_ns);
      options.policy = Policy::budget;
      for (size_t i = 0; i < front.size(); ++i) {
        EXPECT_TRUE(front[i].optimal);
        if (i > 0) {
          EXPECT_LT(front[i].bytes, front[i - 1].bytes);
          EXPECT_GT(front[i].cost_ns, front[i - 1].cost_ns);
        }
        options.budget = front[i].bytes;
        StashPlan plan = plan_stash(p, options);
        EXPECT_EQ(plan.cost_ns, front[i].cost_ns);
        EXPECT_LE(plan.stash_bytes, front[i].bytes);
        size_t kept = 0;
        for (const StashCandidate& c : plan.candidates) kept += c.verdict == StashCandidate::Verdict::kept;
        EXPECT_EQ(kept, front[i].kept.size());
      }
      options.budget = front.back().bytes - 1;
      EXPECT_THROW(plan_stash(p, options), Error);
    }
  EXPECT_GE(longest, 3u);  // there was something to choose
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

// The gradient of b lifts the sum again, over k and n; a tie found in other bits would be another tie.
// The forward's s is over every second element; the backward asks for it at other multiples.
TEST(CseStashPlan, AffineIndicesMatch) {
  Program before = derived("op f(x: f32[2*N+2], w: f32[N]) -> (s, y) {\n s[i in 0..N+1] = sin(x[2*i])\n"
                           " y[k in 0..N] = exp(sin(x[2*k+2]) * w[k]) }");
  StashOptions options;
  options.dropped = {"x"};
  StashPlan plan = plan_stash(before, options);
  // d/dw exp(s*w) = s*y, read from s at k+1; cos(x) is what is left to keep x for.
  EXPECT_NE(print(plan.program).find("s[k+1]"), std::string::npos) << print(plan.program);
  expect_same_values(before, plan.program);
}

TEST(CseStashPlan, ASumUnderOtherAxesIsTheForwards) {
  Program before = derived(
      "op f(x: f32[N,C,H], w: f32[K,C,3], b: f32[K]) -> (y) {\n"
      "  y[n,k,i in 0..H] = max(0, b[k] + sum(c,r: x[n,c,i+r-1 else 0] * w[k,c,r])) }");
  ASSERT_EQ(backward_reductions(before), 4) << print(before);
  StashPlan plan = plan_stash(before);
  EXPECT_EQ(backward_reductions(plan.program), 3) << print(plan.program);
  expect_same_values(before, plan.program);
}

TEST(CseStashPlan, AttentionReadsItsOutput) {
  StashPlan plan = planned("attention");
  EXPECT_EQ(backward_reductions(plan.program), 5) << print(plan.program);
  EXPECT_NE(print(plan.program).find("* o[b,i,d])"), std::string::npos) << print(plan.program);
}

int64_t mask_bytes(const StashPlan& plan) {
  int64_t bytes = 0;
  for (TensorId t : stashes(plan.program))
    if (const Tensor& x = plan.program.tensors[t]; byte_size(x.type) == 1) {
      int64_t n = 1;
      for (Id e : x.shape) n *= evaluate_extent(*plan.program.arena, e, plan.nominal);
      bytes += n;
    }
  return bytes;
}

struct Compared {
  const char* text;
  std::vector<std::string> dropped;
  int64_t masks, others;  // bytes kept, all dims 64
};

// All that the backward asks of these is a comparison: a byte an element is kept, not what is compared.
TEST(CseStashMasks, AComparisonIsKeptInsteadOfWhatItCompares) {
  const Compared table[] = {
      {"op f(x: f32[N]) -> (y) { y[n] = relu(x[n]) }", {"x", "y"}, 64, 0},
      {"op f(x: f32[N], b: f32) -> (y) { y[n] = if x[n] + b < 0 then b*2 else x[n] }", {"x", "y"}, 64, 0},
      {"op f(x: f32[N]) -> (y) { y[n] = clamp(x[n], -1, 1) }", {"x", "y"}, 64, 0},
      // Of two, one is read at other points; the count of ties is made of the mask.
      {"op f(x: f32[2*N,M]) -> (y) { y[n in 0..N,m] = max(r in 0..2: x[2*n+r,m]) }", {"x", "y"}, 2 * 64 * 64, 0},
      {"op f(x: f32[N,D]) -> (y) { y[n] = max(d: x[n,d]) }", {"x", "y"}, 64 * 64, 0},
      // The gradient of w reads x itself.
      {"op f(x: f32[N,C,H], w: f32[K,C,3]) -> (y) {\n"
       "  y[n,k,i in 0..H] = relu(sum(c,r: x[n,c,i+r-1 else 0] * w[k,c,r])) }",
       {"y"}, 64 * 64 * 64, 0},
      // Signs.
      {"op f(x: f32[N]) -> (y) { y[n] = abs(x[n]) }", {"x", "y"}, 64, 0},
      {"op f(x: f32[N], t: f32[N]) -> (y) { y = sum(n: abs(x[n] - t[n])) }", {"x", "t"}, 64, 0},
      // x is there to be compared again.
      {"op f(x: f32[N]) -> (y) { y[n] = relu(x[n]) }", {"y"}, 0, 0},
      // What is compared stays with the caller.
      {"op f(x: f32[N]) -> (y) { y[n] = relu(x[n]) }", {"x"}, 0, 0},
  };
  for (const Compared& c : table) {
    SCOPED_TRACE(c.text);
    Program before = derived(c.text);
    StashOptions options;
    options.dropped = c.dropped;
    StashPlan plan = plan_stash(before, options);
    SCOPED_TRACE(print(plan.program));
    EXPECT_EQ(mask_bytes(plan), c.masks);
    EXPECT_EQ(plan.stash_bytes, c.masks + c.others);
    EXPECT_TRUE(plan.optimal);
    verify(plan.program);
    expect_same_values(before, plan.program);
    // Where nothing may be kept that need not, the comparison is made again.
    options.policy = Policy::none;
    EXPECT_EQ(mask_bytes(plan_stash(before, options)), 0);
  }
}

// As the unmasked gradient, where the sign is of zero, of an infinity or of NaN.
TEST(CseStashMasks, SignsKeepSpecialValues) {
  Program before = derived("op f(x: f32[N]) -> (y) { y[n] = abs(x[n]) }");
  StashOptions options;
  options.dropped = {"x"};
  Program after = plan_stash(before, options).program;
  ASSERT_NE(print(after).find("x_mask"), std::string::npos) << print(after);
  double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  Arrays in = {{"x", array_of(DType::f32, {6}, {0.0, -0.0, inf, -inf, nan, -3})},
               {"dy", array_of(DType::f32, {6}, {1, 2, 3, 4, 5, 6})}};
  Array grad = evaluate(after, in).at("grad_x");
  const double expected[] = {0, 0, 3, -4, nan, -6};
  for (size_t i = 0; i < 6; ++i) {
    if (std::isnan(expected[i])) EXPECT_TRUE(std::isnan(grad.at(i)));
    else EXPECT_EQ(grad.at(i), expected[i]) << i;
  }
}

TEST(CseStashMasks, ANarrowerValueThatIsNeededAnywayIsComparedAgain) {
  Program before = derived("op f(x: f32[N]) -> (y) { y[n] = if 0 < x[n] then sin(x[n]) else 0 }");
  StashOptions options;
  options.dropped = {"x", "y"};
  StashPlan plan = plan_stash(before, options);
  EXPECT_EQ(mask_bytes(plan), 0) << print(plan.program);
  EXPECT_EQ(plan.stash_bytes, 4 * 64) << print(plan.program);
  expect_same_values(before, plan.program);
}

// Half the bytes, and gradients within the rounding of what is kept: 2^-9 of bf16, 2^-12 of f16, times some.
TEST(CseStashNarrow, KeptValuesTakeHalfTheBytesAndRoundOnce) {
  struct Case {
    const char* text;
    std::vector<std::string> dropped;
  };
  const Case table[] = {
      {"op f(x: f32[N]) -> (y) { y[n] = x[n]*sigmoid(x[n]) }", {"x", "y"}},
      {"op f(x: f32[N,D], w: f32[K,D]) -> (y) { y[n,k] = sin(sum(d: x[n,d]*w[k,d])) }", {"y"}},
      {"op f(x: f32[N]) -> (y) { y[i in 0..N] = x[i]*x[i+1 else 0] }", {"x"}},
  };
  for (const Case& c : table)
    for (DType type : {DType::bf16, DType::f16}) {
      SCOPED_TRACE(c.text);
      Program before = derived(c.text);
      StashOptions options;
      options.dropped = c.dropped;
      StashPlan wide = plan_stash(before, options);
      options.store_as = type;
      StashPlan narrow = plan_stash(before, options);
      SCOPED_TRACE(print(narrow.program));
      verify(narrow.program);
      ASSERT_GT(wide.stash_bytes, 0);
      EXPECT_EQ(2 * narrow.stash_bytes, wide.stash_bytes);
      EXPECT_LT(narrow.cost_ns, wide.cost_ns);
      DimValues dims = sample_dims(before, 5);
      Arrays in = random_inputs(before, dims, 5);
      for (auto& [name, dy] : random_cotangents(before, dims, 6)) in[name] = dy;
      Arrays expected = evaluate(wide.program, in, dims), got = evaluate(narrow.program, in, dims);
      double error = 0, largest = 0;
      for (const auto& [name, x] : expected)
        for (size_t i = 0; i < x.size(); ++i) {
          error = std::max(error, std::abs(x.at(i) - got.at(name).at(i)));
          largest = std::max(largest, std::abs(x.at(i)));
        }
      EXPECT_LE(error, 8 * (type == DType::bf16 ? 0x1p-9 : 0x1p-12) * largest);
      EXPECT_GT(error, 0);  // it was rounded
    }
}

TEST(CseStashNarrow, WhatComparisonsDependOnKeepsItsBits) {
  Program before = derived("op f(x: f32[N]) -> (y) { y[n] = if 0 < x[n] then sin(x[n]) else 0 }");
  StashOptions options;
  options.dropped = {"x", "y"};
  options.store_as = DType::bf16;
  StashPlan plan = plan_stash(before, options);
  EXPECT_EQ(plan.stash_bytes, 4 * 64) << print(plan.program);
  expect_same_values(before, plan.program);
  options.store_as = DType::f32;
  EXPECT_THROW(plan_stash(before, options), Error);
}

TEST(CseStashMasks, RandomNumbersAreDrawnAgainFromTheSeed) {
  const char* texts[] = {
      "op f(x: f32[N], seed: i64) -> (y) { y[n] = if random(seed, n) < 0.5 then 2*x[n] else 0 }",
      "op f(x: f32[N], seed: i64) -> (y) { y[n] = x[n] * random(seed, n) }",
      "op f(x: f32[N], seed: i64) -> (y) {\n  r[n in 0..N] = sqrt(random(seed, n))\n  y[n] = sin(x[n] * r[n]) * r[n] }",
  };
  for (const char* text : texts)
    for (Policy policy : {Policy::cost, Policy::largest, Policy::none}) {
      SCOPED_TRACE(text);
      Program before = derived(text);
      StashOptions options;
      options.policy = policy;
      options.dropped = {"y"};
      MachineModel machine;
      machine.write_ps_per_byte = machine.read_ps_per_byte = 0;  // whatever keeping costs
      StashPlan plan = plan_stash(before, options, machine);
      for (TensorId t : stashes(plan.program)) {
        const Definition* d = plan.program.definition_of(t);
        auto read = tensors_read(*plan.program.arena, d->body);
        bool data = std::ranges::any_of(read, [&](TensorId r) { return plan.program.tensors[r].name == "x"; });
        EXPECT_TRUE(data) << print(plan.program);
      }
      EXPECT_GT(backward_nodes(plan.program, Op::random), 0) << print(plan.program);
      expect_same_values(before, plan.program);
    }
}

TEST(CseStashPlan, WhatDecidesABranchIsNotRecomputed) {
  Program p = derived(
      "op f(x: f32[N,D]) -> (y) {\n s[n] = sum(d: x[n,d])\n y[n,d] = if x[n,d] > s[n] then x[n,d]^3 else 0 "
      "}");
  StashPlan plan = plan_stash(p);
  ASSERT_EQ(stashes(plan.program).size(), 1u) << print(plan.program);
  EXPECT_EQ(plan.program.tensors[stashes(plan.program)[0]].name, "s");
}

// Of one value: who needs it, and what the other verdict would cost.
TEST(StashReason, SaysWhatTheOtherVerdictCosts) {
  const Program p = derived_op("batch_norm");
  const DimValues sizes = {{"N", 32}, {"C", 64}, {"H", 56}, {"W", 56}};
  StashOptions options;
  options.nominal = sizes;
  const StashPlan plan = plan_stash(p, options);
  for (const StashCandidate& c : plan.candidates) {
    const StashReason r = stash_reason(p, options, {}, sizes, c.name);
    EXPECT_EQ(r.candidate.verdict, c.verdict);
    EXPECT_DOUBLE_EQ(r.cost_ns, plan.cost_ns);
    EXPECT_GE(r.other_ns, r.cost_ns) << c.name;
    EXPECT_FALSE(r.read_by.empty()) << c.name;
  }
  const auto kept = std::ranges::find(plan.candidates, StashCandidate::Verdict::kept, &StashCandidate::verdict);
  ASSERT_NE(kept, plan.candidates.end());
  const StashReason r = stash_reason(p, options, {}, sizes, kept->name);
  EXPECT_GT(r.other_ns, r.cost_ns);
  EXPECT_EQ(std::ranges::count(r.made_of, "x"), 1);
  EXPECT_THROW(stash_reason(p, options, {}, sizes, "nothing"), Error);
}

}  // namespace
}  // namespace xhat::cse_stash_test
