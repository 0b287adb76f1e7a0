// Which expressions are computed operation by operation, so that they have the same bits in every kernel.
#include <gtest/gtest.h>

#include "fusion/plan/settled_bits.h"

namespace xhat::settled_bits_test {
namespace {

std::string settled(const std::string& text) { return print(settle_bits(parse_op(text))); }

TEST(SettledBits, OperandsOfExtremes) {
  EXPECT_EQ(settled("op f(x: f32[N,M], w: f32[M], s: f32[N]) -> (y) { y[i] = max(j: x[i,j]*w[j] + x[i,j]/s[i]) }"),
            R"(op f(x: f32[N,M], w: f32[M], s: f32[N]) -> (y) {
  y[i] = max(j: stop_gradient(x[i,j] * w[j]) + x[i,j] / stop_gradient(s[i]))
}
)");
}

// A map that an extreme reads may be stored by one kernel and computed by another; a sum is computed once.
TEST(SettledBits, ThroughMapsAndNotThroughSums) {
  EXPECT_EQ(settled(R"(op f(x: f32[N,M], w: f32[M]) -> (t, y) {
  s[i] = sum(j: x[i,j]*w[j] + 1)
  t[i,j] = x[i,j]*w[j] + s[i]
  y[i] = max(j: t[i,j])
})"),
            R"(op f(x: f32[N,M], w: f32[M]) -> (t, y) {
  s[i] = sum(j: x[i,j] * w[j] + 1)
  t[i,j] = stop_gradient(x[i,j] * w[j]) + s[i]
  y[i] = max(j: t[i,j])
}
)");
}

TEST(SettledBits, WhatDecidesNothingStaysAsItIs) {
  for (const char* text : {"op f(x: f32[N,M], w: f32[N]) -> (y) { y[i,j] = relu(x[i,j]*w[i] + x[i,j]/w[i]) }",
                           "op f(x: f32[N,M], w: f32[N]) -> (y) { y[i,j] = max(x[i,j], w[i]) + x[i,j]*w[i] }"})
    EXPECT_EQ(settled(text), print(parse_op(text)));
}

TEST(SettledBits, NarrowTypesAreRoundedWhereTheyAreComparedForEquality) {
  EXPECT_EQ(settled("op f(x: f16[N], w: f16[N]) -> (y) { y = max(i: x[i]*w[i]*x[i]) }"),
            R"(op f(x: f16[N], w: f16[N]) -> (y) {
  y = max(i: stop_gradient(stop_gradient(x[i] * w[i]) * x[i]))
}
)");
}

// Both directions alike: the backward's comparison settles what the forward writes.
TEST(SettledBits, AComparisonOfTheBackwardReachesTheForward) {
  EXPECT_EQ(settled(R"(op f(x: f32[N], w: f32[N]) -> (y) {
  y[i] = x[i]*w[i] + 1
} backward (dy: f32[N]) -> (grad_x) {
  grad_x[i] = if y[i] == 1 then dy[i] else 0
})"),
            R"(op f(x: f32[N], w: f32[N]) -> (y) {
  y[i] = stop_gradient(x[i] * w[i]) + 1
} backward (dy: f32[N]) -> (grad_x) {
  grad_x[i] = if y[i] == 1 then dy[i] else 0
}
)");
}

// An fma would leave the rounding of the product, in which the two cancel.
TEST(SettledBits, WhatAnExtremeIsSubtractedFromIsRoundedBefore) {
  EXPECT_EQ(settled("op f(x: f32[N], w: f32) -> (y) { m = max(i: x[i]*w); s = if m > -inf then m else 0; y[i] = exp(x[i]*w - s) }"),
            R"(op f(x: f32[N], w: f32) -> (y) {
  m = max(i: x[i] * w)
  s = if -inf < m then m else 0
  y[i] = exp(stop_gradient(x[i] * w) - s)
}
)");
  EXPECT_EQ(settled("op f(x: f32[N], z: f32[N], w: f32) -> (y, t) { y[i] = x[i]*w - max(x[i]*w, z[i]); t[i] = x[i]*w - f32(i32(x[i]*w)) }"),
            R"(op f(x: f32[N], z: f32[N], w: f32) -> (y, t) {
  y[i] = let t1 = x[i] * w in stop_gradient(t1) - max(t1, z[i])
  t[i] = let t1 = x[i] * w in stop_gradient(t1) - f32(i32(t1))
}
)");
}

// One kernel may read p, where another computes it.
TEST(SettledBits, WhatIsRoundedToAnIntegerReachesOtherDefinitions) {
  EXPECT_EQ(settled("op f(g: f32[N], w: f32, b: f32) -> (y, p) { p[i] = g[i]*w + b; y[i in 0..N-1] = i64(p[i+1]) }"),
            R"(op f(g: f32[N], w: f32, b: f32) -> (y, p) {
  p[i] = stop_gradient(g[i] * w) + b
  y[i in 0..N-1] = i64(p[i+1])
}
)");
}

// Whatever jumps where the last bit of its operand changes.
TEST(SettledBits, OperandsOfAllThatJumps) {
  for (const std::string value : {"floor({})", "ceil({})", "round({})", "trunc({})", "{} % 2", "fmod({}, 2)", "remainder({}, 2)",
                                  "copysign(2, {})", "f32(i32({}))"}) {
    auto op = [&](std::string operand) {
      std::string body = value;
      return "op f(x: f32[N], w: f32[N]) -> (y) {\n  y[i] = " + body.replace(body.find("{}"), 2, operand) + "\n}\n";
    };
    EXPECT_EQ(settled(op("(x[i] * w[i] + 1)")), print(parse_op(op("(stop_gradient(x[i] * w[i]) + 1)"))));
  }
}

}  // namespace
}  // namespace xhat::settled_bits_test
