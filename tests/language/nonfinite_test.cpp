// Where a NaN or an infinity comes from.
#include "expr/eval/nonfinite.h"

#include <gtest/gtest.h>

#include <limits>

#include "ad/reverse/gradient.h"

namespace xhat::nonfinite_test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::string origin(const Program& p, const Arrays& inputs) {
  auto found = find_nonfinite(p, inputs, solve_dims(p, shapes_of(inputs)));
  return found ? found->message : "";
}
std::string origin(const std::string& text, const Arrays& inputs) { return origin(parse_op(text), inputs); }
Array floats(std::vector<double> values) { return array_of(DType::f32, {static_cast<int64_t>(values.size())}, values); }

TEST(NonFinite, TheFirstOperationOfFiniteOperands) {
  const char* softmax = "op f(x: f32[N]) -> (y) { e[i] = exp(x[i]); y[i] = e[i] / sum(k: e[k]) }";
  EXPECT_EQ(origin(softmax, {{"x", floats({1, 2})}}), "");
  EXPECT_EQ(origin(softmax, {{"x", floats({1, 2, 1000})}}), "e[2] is inf: exp(x[i]) makes it of x[i] = 1000; y[2] is nan because of it");
  EXPECT_EQ(origin("op f(x: f32[N]) -> (y) { y[i] = 3 + sqrt(x[i] - 1) }", {{"x", floats({1, 0.5})}}),
            "y[1] gets nan: sqrt(x[i] - 1) makes it of x[i] - 1 = -0.5; y[1] is nan because of it");
}

TEST(NonFinite, OfReductions) {
  EXPECT_EQ(origin("op f(x: f32[N]) -> (y) { y = sum(i: x[i]) }", {{"x", floats({3e38, 3e38, 1})}}),
            "y is inf: sum(i: x[i]) makes it of 3 terms, the largest 3e+38");
  EXPECT_EQ(origin("op f(x: f32[N]) -> (y) { y = max(i if x[i] > 5: x[i]) }", {{"x", floats({1, 2})}}),
            "y is -inf: max(i if 5 < x[i]: x[i]) makes it of no terms");
  EXPECT_EQ(origin("op f(x: f32[N]) -> (y) { y = sum(i: 1 / x[i]) }", {{"x", floats({1, 0, 2})}}),
            "y gets inf: 1 / x[i] (at i = 1) makes it of x[i] = 0; y is inf because of it");
}

TEST(NonFinite, WhatComesInAndWhatIsWritten) {
  const char* twice = "op f(x: f32[N]) -> (y) { t[i] = 2 * x[i]; y[i] = t[i] + 1 }";
  EXPECT_EQ(origin(twice, {{"x", floats({1, kInf})}}), "input x[1] is inf when it comes in; y[1] is inf because of it");
  EXPECT_EQ(
      origin("op f(x: f32[N]) -> (y) { m[i] = if x[i] > 0 then x[i] else -inf; y[i] = exp(m[i] - m[i]) }", {{"x", floats({1, -1})}}),
      "y[1] gets nan: m[i] - m[i] makes it of m[i] = -inf, m[i] = -inf; -inf is written in the definition of m; y[1] is nan because of it");
}

TEST(NonFinite, AnInfinityThatDoesNotReachAResultIsNone) {
  EXPECT_EQ(origin("op f(x: f32[N]) -> (y) { t[i] = 1 / x[i]; y[i] = 1 / t[i] }", {{"x", floats({0, 2})}}), "");
}

TEST(NonFinite, OfGradients) {
  const Program p = gradient(parse_op("op f(x: f32[N]) -> (y) { y[i] = sqrt(x[i]) }"));
  EXPECT_EQ(origin(p, {{"x", floats({4, 0})}, {"dy", floats({1, 1})}}),
            "grad_x[1] is inf: dy[i] * 0.5 / y[i] makes it of dy[i] * 0.5 = 0.5, y[i] = 0");
  EXPECT_EQ(origin(p, {{"x", floats({4, 1})}, {"dy", floats({1, kInf})}}),
            "cotangent dy[1] is inf when it comes in; grad_x[1] is inf because of it");
}

}  // namespace
}  // namespace xhat::nonfinite_test
