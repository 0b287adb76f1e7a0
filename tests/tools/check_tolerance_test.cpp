// What `xhat check` takes for rounding.
#include "tools/check_tolerance.h"

#include <gtest/gtest.h>

#include <limits>

namespace xhat::check_tolerance_test {
namespace {

using namespace xhat::tool;

Array floats(std::vector<double> values) {
  Array a = zeros(DType::f32, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) a.reals[i] = values[i];
  return a;
}

TEST(CheckTolerance, AGradientIsWrongOnlyBeyondTheToleranceAndPlain) {
  constexpr double kTolerance = 1e-5;
  const Array exact = floats({1, -1});
  auto judged = [&](double ours, double plain) { return precision(floats({1, -1 + ours}), floats({1 + plain, -1}), exact, kTolerance); };
  EXPECT_TRUE(judged(0, 0).ours.passed);
  EXPECT_TRUE(judged(9e-6, 0).ours.passed);      // within the tolerance
  EXPECT_FALSE(judged(2e-5, 0).ours.passed);     // plain loses nothing
  EXPECT_FALSE(judged(2e-5, 5e-7).ours.passed);  // 40 times as much as plain
  EXPECT_TRUE(judged(2e-5, 1e-6).ours.passed);   // 20 times
  EXPECT_TRUE(judged(0, 1e-2).ours.passed);      // better
  const Precision p = judged(2e-5, 5e-7);
  EXPECT_NEAR(p.ours.error, 2e-5, 1e-9);
  EXPECT_NEAR(p.plain, 5e-7, 1e-9);
  EXPECT_EQ(p.ours.element, 1u);
}

TEST(CheckTolerance, WhatThePlainFormulaLosesAltogetherIsNoMistakeOfOurs) {
  const Array exact = floats({1, 2}), overflown = floats({std::numeric_limits<double>::infinity(), 2});
  EXPECT_TRUE(precision(overflown, overflown, exact, 1e-5).ours.passed);
  EXPECT_FALSE(precision(overflown, exact, exact, 1e-5).ours.passed);
}

TEST(Visits, AreCountedBeforeTheyAreMade) {
  const Program p = parse_op("op f(a: f32[N,K], b: f32[K,M]) -> (y, z) { y[i,j] = sum(k: a[i,k]*b[k,j])\n z[i] = sum(j: exp(sum(k: y[i,k]*y[j,k]))) }");
  const Visits few = visits(p, {{"N", 40}, {"K", 30}, {"M", 40}}), more = visits(p, {{"N", 80}, {"K", 30}, {"M", 80}});
  EXPECT_GE(few.most, 40.0 * 40 * 40);  // sums of sums
  EXPECT_EQ(few.of, "z");
  EXPECT_GT(few.all, few.most);
  EXPECT_NEAR(more.most / few.most, 8, 0.5);
}

}  // namespace
}  // namespace xhat::check_tolerance_test
