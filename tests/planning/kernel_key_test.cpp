// Keys of kernels, by which choices that were measured find them again; and what a choice changes of a plan.
#include <gtest/gtest.h>

#include "cse/normalize/auto_inliner.h"
#include "fusion/plan/plan.h"

namespace xhat::kernel_key_test {
namespace {

const char kRows[] = "op f(x: f32[N,D]) -> (y) { s[n] = sum(d: x[n,d]); y[n,d] = x[n,d] / s[n] }";
const DimValues kSizes = {{"N", 4096}, {"D", 256}};

KernelPlan plan_of(const std::string& text, const DimValues& sizes, const PlanRequest& request = {}) {
  return plan_kernels(infer_program(inline_injective(parse_op(text))), sizes, request);
}
std::string key_of(const std::string& text, const DimValues& sizes, const PlanRequest& request = {}) {
  KernelPlan plan = plan_of(text, sizes, request);
  EXPECT_EQ(plan.kernels.size(), 1u) << text;
  return plan.kernels.at(0).key;
}

TEST(KernelKey, NamesAndTilesAreNotInIt) {
  std::string key = key_of(kRows, kSizes);
  EXPECT_EQ(key.size(), 16u);
  EXPECT_EQ(key, key_of("op g(u: f32[K,L]) -> (v) { t[k] = sum(l: u[k,l]); v[k,l] = u[k,l] / t[k] }", {{"K", 4096}, {"L", 256}}));
  PlanRequest small;
  small.machine.tile_bytes = 16 << 10;
  EXPECT_EQ(key, key_of(kRows, kSizes, small));
}

TEST(KernelKey, WhatIsComputedIs) {
  std::string key = key_of(kRows, kSizes);
  EXPECT_NE(key, key_of(kRows, {{"N", 4095}, {"D", 256}}));
  EXPECT_NE(key, key_of(kRows, {{"N", 256}, {"D", 4096}}));
  EXPECT_NE(key, key_of("op f(x: f64[N,D]) -> (y) { s[n] = sum(d: x[n,d]); y[n,d] = x[n,d] / s[n] }", kSizes));
  EXPECT_NE(key, key_of("op f(x: f32[N,D]) -> (y) { s[n] = sum(d: x[n,d]); y[n,d] = s[n] / x[n,d] }", kSizes));
  EXPECT_NE(key, key_of("op f(x: f32[N,D]) -> (y) { s[n] = sum(d: x[n,d]); y[n,d] = x[n,d] / s[n] + 1 }", kSizes));
  EXPECT_NE(key, key_of("op f(x: f32[N,D]) -> (y, s) { s[n] = sum(d: x[n,d]); y[n,d] = x[n,d] / s[n] }", kSizes));
  EXPECT_NE(key_of("op f(x: f32[N]) -> (y) { y[i] = x[i] * 2 }", {{"N", 9}}),
            key_of("op f(x: f32[N]) -> (y) { y[i] = x[i] * 3 }", {{"N", 9}}));
  // Twice the same operand, or two.
  EXPECT_NE(key_of("op f(x: f32[N], z: f32[N]) -> (y) { y[i] = x[i] * z[i] }", {{"N", 9}}),
            key_of("op f(x: f32[N], z: f32[N]) -> (y) { y[i] = x[i] * x[i] }", {{"N", 9}}));
}

TEST(KernelKey, AChoiceIsForItsKernelAlone) {
  const std::string two = "op f(x: f32[N,D]) -> (y, z) { s[n] = sum(d: x[n,d]); y[n,d] = x[n,d] / s[n]; z[d,n] = tanh(x[n,d]) }";
  PlanRequest apart, tuned;
  apart.options.policy = tuned.options.policy = FusePolicy::off;
  KernelPlan rules = plan_of(two, kSizes, apart);
  ASSERT_EQ(rules.kernels.size(), 3u);
  tuned.choices[rules.kernels[1].key] = {32 << 10, 0, 2};
  tuned.choices["0123456789abcdef"] = {16 << 10, 0, 1};
  KernelPlan plan = plan_of(two, kSizes, tuned);
  ASSERT_EQ(plan.kernels.size(), 3u);
  for (size_t k = 0; k < 3; ++k) {
    EXPECT_EQ(plan.kernels[k].key, rules.kernels[k].key);
    EXPECT_EQ(plan.kernels[k].choice == KernelChoice{}, k != 1);
    for (size_t c = 0; c < rules.kernels[k].axes.size() && k != 1; ++c)
      EXPECT_EQ(plan.kernels[k].axes[c].tile, rules.kernels[k].axes[c].tile);
  }
  const Kernel& small = plan.kernels[1];
  EXPECT_EQ(small.choice.vectors, 2);
  EXPECT_LT(small.axes[static_cast<size_t>(small.shared[0])].tile, rules.kernels[1].axes[static_cast<size_t>(small.shared[0])].tile);
}

// What is small is one tile by the rules; a choice may have more.
TEST(KernelKey, AChoiceMayCutWhatIsSmall) {
  const DimValues sizes = {{"N", 32}, {"D", 64}};
  KernelPlan rules = plan_of(kRows, sizes);
  auto rows = [](const KernelPlan& plan) { return plan.kernels.at(0).axes[static_cast<size_t>(plan.kernels[0].shared.at(0))].tile; };
  EXPECT_EQ(rows(rules), 32);
  PlanRequest tuned;
  tuned.choices[rules.kernels.at(0).key] = {1 << 20, 4, 0};
  EXPECT_EQ(rows(plan_of(kRows, sizes, tuned)), 8);
  tuned.choices[rules.kernels.at(0).key] = {int64_t{1} << 40, 1, 0};
  EXPECT_EQ(rows(plan_of(kRows, {{"N", 32}, {"D", 64}}, tuned)), 32);
}

}  // namespace
}  // namespace xhat::kernel_key_test
