// What is 0 but where a condition on positions holds: stored values under their guard (cse/share/stored_forms.h), and the sums that read
// such (cse/algebra/solved_conditions.h).
#include <gtest/gtest.h>

#include "expr/rules/simplify.h"
#include "tests/helpers/cse_helper.h"

namespace xhat::guarded_values_test {
namespace {

using testing::backward_reductions;
using testing::body_of;
using testing::derived;
using testing::expect_same_values;

StashPlan planned(const std::string& text) {
  const Program p = derived(text);
  StashOptions options;
  options.nominal = {{"H", 4}, {"S", 256}, {"D", 64}};
  StashPlan plan = plan_stash(p, options);
  verify(plan.program);
  expect_same_values(p, plan.program);
  return plan;
}

std::string attention(const std::string& masked) {
  return "op f(q: f64[H,S,D], k: f64[H,S,D], v: f64[H,S,D]) -> (y) {\n  s[h,i,j] = sum(d: q[h,i,d]*k[h,j,d])*0.125\n" + masked +
         "  y[h,i,d] = sum(j: p[h,i,j]*v[h,j,d])\n}";
}

std::string kept(const StashPlan& plan) {
  std::string names;
  for (TensorId t : stashes(plan.program)) names += (names.empty() ? "" : " ") + plan.program.tensors[t].name;
  return names;
}

// The weights alone are kept, as of attention without a mask, and the gradients go over what the mask leaves.
TEST(GuardedValues, OfMaskedAttentionTheWeightsAreKept) {
  for (const char* masked :
       {"  m[h,i] = max(j if j <= i: s[h,i,j])\n  e[h,i,j] = if j <= i then exp(s[h,i,j] - m[h,i]) else 0\n"
        "  p[h,i,j] = e[h,i,j]/sum(l: e[h,i,l])\n",
        "  e[h,i,j] = if j <= i then exp(s[h,i,j]) else 0\n  z[h,i] = sum(l: e[h,i,l])\n  p[h,i,j] = e[h,i,j]/z[h,i]\n",
        "  p[h,i,j] = if i - j < 64 && j <= i then exp(s[h,i,j]) else 0\n", "  p[h,i,j] = if j < i + 1 then tanh(s[h,i,j]) else 0\n",
        "  e[h,i,j] = if j % 4 == i % 4 then exp(s[h,i,j]) else 0\n  p[h,i,j] = e[h,i,j]/sum(l: e[h,i,l])\n"}) {
    SCOPED_TRACE(masked);
    const StashPlan plan = planned(attention(masked));
    EXPECT_EQ(kept(plan), "p") << print(plan.program);
  }
}

TEST(GuardedValues, SumsGoOverWhatIsNotZero) {
  const StashPlan plan = planned(attention("  p[h,i,j] = if j <= i then exp(s[h,i,j])/(1 + s[h,i,j]^2) else 0\n"));
  EXPECT_NE(body_of(plan.program, "grad_q").find("j in 0..i+1"), std::string::npos) << print(plan.program);
  EXPECT_NE(body_of(plan.program, "grad_k").find("i in j..S"), std::string::npos) << print(plan.program);
  // k < i + 1, with i summed over: the scores of a masked maximum.
  const StashPlan masked = planned(attention(
      "  m[h,i] = max(j if j <= i: s[h,i,j])\n  n[h,i] = sum(j if j <= i: exp(s[h,i,j] - m[h,i]))\n"
      "  p[h,i,j] = if j <= i then exp(s[h,i,j] - m[h,i])/n[h,i] else 0\n"));
  EXPECT_NE(body_of(masked.program, "grad_k").find("i in j..S"), std::string::npos) << print(masked.program);
}

// Choices by one condition are one, and those that another one has made are made.
TEST(GuardedValues, ChoicesAreMadeOnce) {
  auto gradient = [&](const std::string& y) {
    const Program p = derived("op f(x: f64[N]) -> (y) { y[i] = " + y + " }");
    const StashPlan plan = plan_stash(p);
    expect_same_values(p, plan.program);
    return body_of(plan.program, "grad_x");
  };
  EXPECT_EQ(gradient("if x[i] > 0 then sin(x[i]) else x[i]*x[i]"), "if 0 < x[i] then dy[i] * cos(x[i]) else 2 * (x[i] * dy[i])");
  const Program p = parse_op(
      "op f(x: f64[N]) -> (y) { y[i] = if x[i] < 0 then (if x[i] < 2 then 1 else x[i]) else if x[i] == 3 then "
      "(if x[i] <= 3 then 5 else 6) else if x[i] < 4 then (if x[i] < -1 then x[i] else 7) else 8 }");
  const Program after = with_decided_choices(p);
  expect_same_values(p, after);
  EXPECT_EQ(body_of(after, "y"), "if x[i] < 0 then 1 else if x[i] == 3 then 5 else if x[i] < 4 then 7 else 8");
  // Of a NaN every comparison fails: x < 2 may fail where x < 3 does not hold, and 3 <= x as well.
  const Program stays = parse_op("op f(x: f64[N]) -> (y) { y[i] = if x[i] < 3 then 1 else if 2 <= x[i] then 2 else 3 }");
  EXPECT_TRUE(equal(stays, with_decided_choices(stays)));
}

// An extreme with a number is one of the two where it is known which; at a tie it keeps its own derivative.
TEST(GuardedValues, ExtremesAreDecided) {
  auto after = [](const std::string& y) {
    const Program p = simplify(parse_op("op f(x: f64[N]) -> (y) { y[i] = " + y + " }")), q = with_decided_choices(p);
    expect_same_values(p, q);
    return body_of(q, "y");
  };
  EXPECT_EQ(after("if 0 < x[i] then relu(x[i])*max(x[i], -1) + abs(x[i]) else 0"), "if 0 < x[i] then x[i] * x[i] + x[i] else 0");
  EXPECT_EQ(after("if x[i] < -1 then max(x[i], -1) + min(0, x[i]) else 0"), "if x[i] < -1 then -1 + x[i] else 0");
  EXPECT_EQ(after("if x[i] < 1 && -1 < x[i] then clamp(x[i], -1, 1) else 0"), "if x[i] < 1 && -1 < x[i] then x[i] else 0");
  EXPECT_EQ(after("if 2 < x[i] then clamp(x[i], -1, 1) else 0"), "if 2 < x[i] then 1 else 0");
  for (const std::string stays : {"if 0 <= x[i] then relu(x[i]) else 0", "if x[i] <= 0 then 0 else relu(x[i])",
                                  "if -1 < x[i] then max(x[i], 0) else 0", "if x[i] < 1 then clamp(x[i], -1, 1) else 0"})
    EXPECT_EQ(after(stays), stays);
}

// What ranges and the same condition around it decide, once nothing is to be found again any more.
TEST(GuardedValues, ChoicesAreMadeByRangesAndConditions) {
  auto after = [](const std::string& y) {
    const Program p = parse_op("op f(x: f64[N], s: f64) -> (y) { y[i] = " + y + " }"),
                  q = simplify(with_decided_choices(p, Decisions::all));
    expect_same_values(p, q);
    return body_of(q, "y");
  };
  EXPECT_EQ(after("x[i]*(if i < N then exp(if i <= N then x[i] else s) else s)"), "x[i] * exp(x[i])");
  EXPECT_EQ(after("x[i]*(if i >= N then s else x[i])"), "x[i] * x[i]");
  EXPECT_EQ(after("x[i]*(if s == 1 then exp(if s == 1 then x[i] else s) else exp(if s != 1 then x[i] else s))"),
            "x[i] * exp(x[i])");
  EXPECT_EQ(after("sum(k if x[k] < s: if x[k] < s then x[k]*x[i] else s)"), "sum(k if x[k] < s: x[k] * x[i])");
  EXPECT_EQ(after("sum(k in 0..i: if k < i then x[k] else s)*x[i]"), "sum(k in 0..i: if k < i then x[k] else s) * x[i]");  // not the root
}

// A value that data guard is another one where they do not.
TEST(GuardedValues, AnotherGuardIsAnotherValue) {
  const StashPlan plan = planned(
      "op f(x: f64[H,S], w: f64[H,S], u: f64[S]) -> (y) {\n  p[h,i] = if u[i] > 0 then exp(x[h,i]) else 0\n"
      "  y[h,i] = p[h,i]*w[h,i] + (if u[i] < 1 then exp(x[h,i]) else 0)\n}");
  EXPECT_EQ(backward_reductions(plan.program), 0);
}

// The half of the slope that a maximum has at a tie is times what is 0 there.
TEST(GuardedValues, WhatIsMadeOfAValueIsANumberWhereThatIs) {
  for (const char* y : {"max(x[n], 0)^2", "max(x[n], 2)^2 - 4*max(x[n], 2)", "min(x[n], 0)*tanh(x[n])", "sin(max(x[n], 0))^2",
                        "exp(x[n])*(max(x[n], 1) - 1)^2"}) {
    const Program p = derived(std::string("op f(x: f64[N]) -> (y) { y[n] = ") + y + " }");
    const Program after = plan_stash(p).program;
    expect_same_values(p, after);
    EXPECT_EQ(body_of(after, "grad_x").find("=="), std::string::npos) << print(after);
  }
  // Not so: the slope of x itself.
  const Program p = derived("op f(x: f64[N]) -> (y) { y[n] = max(x[n], 0)*cos(x[n]) }");
  EXPECT_NE(body_of(plan_stash(p).program, "grad_x").find("=="), std::string::npos);
}

}  // namespace
}  // namespace xhat::guarded_values_test
