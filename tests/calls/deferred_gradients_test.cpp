// Gradients of what does not change in a loop: what is added up once for many iterations, and when.
#include "ad/reverse/deferred_gradients.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ad/reverse/gradient.h"
#include "runtime/call/compile.h"
#include "runtime/explain/explain.h"

namespace xhat::deferred_gradients_test {
namespace {

Program cell() {
  return gradient(parse_op("op cell(h: f32[B,H], w: f32[H,H], bias: f32[H]) -> (y) { y[b,j] = tanh(sum(k: h[b,k]*w[j,k]) + bias[j]) }"));
}

TEST(DeferredGradients, AreSumsOverRunsOfWhatARunHandsOn) {
  const auto made = defer_gradients(cell(), {"w", "bias"}, {{"B", 2}, {"H", 8}});
  ASSERT_TRUE(made);
  EXPECT_EQ(print(made->sums),
            "op cell_sums(h: f32[runs,B,H], part: f32[runs,B,H]) -> (grad_w, grad_bias) {\n"
            "  grad_w[j,k] = sum(run: sum(b: part[run,b,j] * h[run,b,k]))\n"
            "  grad_bias[j] = sum(run: sum(b: part[run,b,j]))\n"
            "}\n");
  EXPECT_EQ(made->part_bytes, 2 * 2 * 8 * 4);
  EXPECT_EQ(made->gradient_bytes, (8 * 8 + 8) * 4);
}

// With rows enough, what the product is made of is larger than the weights. What changes is never deferred.
TEST(DeferredGradients, WaitOnlyWhereThatMovesFewerBytes) {
  EXPECT_FALSE(defer_gradients(cell(), {"w", "bias"}, {{"B", 5}, {"H", 8}}));
  EXPECT_FALSE(defer_gradients(cell(), {}, {{"B", 2}, {"H", 8}}));
  EXPECT_FALSE(defer_gradients(cell(), {"bias"}, {{"B", 2}, {"H", 8}}));
}

// A part is made where its gradient is: what a condition keeps inside is read under that condition alone. Of a sum over axes that the
// gradient lacks, the sum is the part, not what it is made of.
TEST(DeferredGradients, PartsStandUnderTheConditionsOfTheirGradients) {
  const Program op = gradient(parse_op(
      "op row(x: f32[T,S], e: f32[S,V], a: f32[S,S], t: i64, v: i64) -> (y) {\n"
      "  y[i] = if t > 0 then e[i,v] * sum(j: x[t-1,j] * a[j,i]) else 0\n}"));
  const auto made = defer_gradients(op, {"e"}, {{"T", 20}, {"S", 4}, {"V", 64}});
  ASSERT_TRUE(made);
  const std::string text = print(made->op);
  EXPECT_NE(text.find("part[i] = if 0 < t then sum(j: x[t-1,j] * a[j,i]) else 0"), std::string::npos) << text;
  EXPECT_EQ(print(made->sums).find("x["), std::string::npos) << print(made->sums);
  const Program product = gradient(parse_op(
      "op product(x: f32[T,B,S], w: f32[S,S], t: i64) -> (y) {\n"
      "  y[b,i] = if t > 0 then sum(j: exp(x[t-1,b,j]) * w[i,j]) else 0\n}"));
  const auto guarded = defer_gradients(product, {"w"}, {{"T", 20}, {"B", 2}, {"S", 64}});
  ASSERT_TRUE(guarded);
  const std::string parts = print(guarded->op);
  EXPECT_NE(parts.find("part[b,j] = if 0 < t then exp(x[t-1,b,j]) else 0"), std::string::npos) << parts;
}

Program rnn() {
  return parse_op(
      "prog rnn(x: f32[T,B,H], h0: f32[B,H], w: f32[H,H]) -> (h) {\n  var h = h0\n"
      "  for t in 0..T { h[b,j] = tanh(x[t,b,j] + 0.1 * sum(k: h[b,k] * w[j,k])) }\n}");
}

struct Ran {
  std::vector<float> grad_w;
  int64_t kernels = 0, of_weights = 0, allocations = 0, replayed = 0;
};

// A budget that everything fits in: blocks are called, where a loop as small as these would be one function otherwise.
const StashOptions kByBlocks = {.policy = StashOptions::Policy::budget, .budget = int64_t{1} << 30};

Ran run_back(int64_t T, int64_t B, int64_t H, const StashOptions& stash = kByBlocks) {
  Ran ran;
  CompileOptions options;
  options.stash = stash;
  options.on_kernel = [&](const Kernel& k, double) { ran.of_weights += k.name.find("grad_w") != std::string::npos; };
  CompiledOp op = compile(rnn(), options);
  std::vector<float> x(static_cast<size_t>(T * B * H)), h0(static_cast<size_t>(B * H)), w(static_cast<size_t>(H * H)), h(h0.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  for (size_t i = 0; i < w.size(); ++i) w[i] = std::cos(static_cast<float>(3 * i));
  std::vector<float> dh(h0.size(), 1), gx(x.size()), gh(h0.size());
  ran.grad_w.resize(w.size());
  Stash kept = op.forward({{"x", TensorView(x.data(), {T, B, H})},
                           {"h0", TensorView(h0.data(), {B, H})},
                           {"w", TensorView(w.data(), {H, H})},
                           {"h", TensorView(h.data(), {B, H})}});
  for (int again = 0; again < 2; ++again) {  // the second finds memory of the first
    ran.of_weights = 0;
    const CallCounts counts = op.backward({{"dh", TensorView(dh.data(), {B, H})},
                                           {"grad_x", TensorView(gx.data(), {T, B, H})},
                                           {"grad_h0", TensorView(gh.data(), {B, H})},
                                           {"grad_w", TensorView(ran.grad_w.data(), {H, H})}},
                                          kept);
    ran.kernels = counts.kernels;
    ran.allocations = counts.allocations;
    ran.replayed = counts.replayed;
  }
  return ran;
}

// The parts of an iteration have 256 bytes, and the weights 1024: 16 iterations are added up at once.
TEST(DeferredGradients, OneProductAddsUpManyIterations) {
  EXPECT_EQ(run_back(16, 2, 16).of_weights, 1);
  EXPECT_EQ(run_back(17, 2, 16).of_weights, 2);
  EXPECT_EQ(run_back(160, 2, 16).of_weights, 10);
  EXPECT_EQ(run_back(20, 16, 16).of_weights, 20) << "of rows as many as the weights have, each iteration adds";
  EXPECT_EQ(run_back(32, 2, 16).kernels - run_back(16, 2, 16).kernels, 16 + 1);
}

TEST(DeferredGradients, AnIterationAllocatesNothing) {
  EXPECT_EQ(run_back(32, 2, 16).allocations, 0);
  EXPECT_EQ(run_back(160, 2, 16).allocations, 0);
}

// What runs again, runs the same kernels in the same order: the same bits.
TEST(DeferredGradients, AreTheSameWithinABudget) {
  const Ran all = run_back(40, 1, 8), some = run_back(40, 1, 8, {.policy = StashOptions::Policy::budget, .budget = 300});
  EXPECT_GT(some.replayed, 0);
  EXPECT_EQ(all.grad_w, some.grad_w);
  EXPECT_LT(all.of_weights, 40);
}

TEST(DeferredGradients, AreExplained) {
  const Explanation e = explain(rnn(), {.stash = kByBlocks}, {{"T", 160}, {"B", 2}, {"H", 16}});
  EXPECT_TRUE(std::ranges::any_of(e.backward.kernels, [](const ExplainedKernel& k) {
    return k.name == "rnn_1.grad_w" && k.reason.find("runs 10 times; over 16 iterations at once") != std::string::npos;
  }));
}

}  // namespace
}  // namespace xhat::deferred_gradients_test
