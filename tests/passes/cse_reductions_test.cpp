// The reduction algebra: how many sums are left of plain definitions, and that values stay.
#include "cse/algebra/idle_sums.h"
#include "cse/algebra/reduction_algebra.h"

#include <gtest/gtest.h>

#include "ad/reverse/gradient.h"
#include "cse/algebra/equal_reductions.h"
#include "cse/normalize/auto_inliner.h"
#include "cse/share/cse_optimizer.h"
#include "tests/helpers/cse_helper.h"
#include "tests/helpers/golden.h"

namespace xhat::cse_reductions_test {
namespace {

using testing::backward_reductions;
using testing::derived;
using testing::derived_op;
using testing::expect_same_values;

// Sums of odd and even functions of differences, however the differences are turned.
TEST(CseReductionsOfPairs, ReadWhatTheForwardSummed) {
  for (const auto& [text, sums] : std::vector<std::pair<std::string, int>>{
           {"op f(t: f64[N]) -> (c, s) { c[i] = sum(j: cos(t[j]-t[i]))\n s[i] = sum(j: sin(t[i]-t[j])) }", 2},
           {"op f(s: f64[N], v: f64[N]) -> (p) { p[i] = sum(j if j != i: 1+erf((s[i]-s[j])/v[i])) + sum(j if j != i: "
            "erf((s[j]-s[i])/v[i])) }",
            0},
           {"op f(x: f64[N], k: f64) -> (e) { e[i] = sum(j: tanh(k*(x[i]-x[j]))*x[j]) - sum(j: tanh(k*(x[j]-x[i]))) }", 3}}) {
    const Program before = derived(text);
    StashPlan plan = plan_stash(before);
    EXPECT_EQ(backward_reductions(plan.program), sums) << print(plan.program);
    verify(plan.program);
    expect_same_values(before, plan.program);
  }
}

// Rows of a centred matrix are centred, whatever they are multiplied by.
TEST(CseReductionsOfCentred, AreZeroWithinOtherSums) {
  for (const auto& [text, sums] : std::vector<std::pair<std::string, int>>{
           {"op f(x: f64[N,D]) -> (c) { m[d] = mean(n: x[n,d])\n c[d,e in 0..D] = sum(n: (x[n,d] - m[d])*(x[n,e] - m[e])) }", 2},
           {"op f(x: f64[N,D]) -> (y) { z[n,d] = x[n,d] - mean(k: x[k,d])\n c[d,e in 0..D] = sum(n: z[n,d]*z[n,e])\n"
            " y = sum(d,e: if d == e then 0 else c[d,e]^2) + sum(d: sqrt(c[d,d])) }",
            1},
           {"op f(x: f64[N,D], w: f64[D,K]) -> (y) { z[n,d] = x[n,d] - mean(k: x[k,d])\n y[n,k] = tanh(sum(d: z[n,d]*w[d,k])) }", 3}}) {
    const Program before = derived(text);
    const StashPlan plan = plan_stash(before);
    EXPECT_EQ(backward_reductions(plan.program), sums) << print(plan.program);
    verify(plan.program);
    expect_same_values(before, plan.program);
  }
}

// A share of a softmax that is named and read twice: no gradient by the maximum, though it is made of four tensors of its size or read at its place.
TEST(CseReductionsOfPicked, NeedNoMaximum) {
  const Program before = derived(
      "op f(z: f64[N,K], t: i32[N]) -> (y) { m[n] = max(k: z[n,k])\n e[n,k] = exp(z[n,k] - m[n])\n"
      " p[n] = e[n,t[n]]/sum(j: e[n,j])\n q[n] = 1 - p[n]\n y = -sum(n: q[n]*q[n]*log(p[n])) }");
  const StashPlan plan = plan_stash(before);
  EXPECT_EQ(backward_reductions(plan.program), 0) << print(plan.program);
  expect_same_values(before, plan.program);
}

class CseReductions : public ::testing::TestWithParam<testing::PlainOp> {};

TEST_P(CseReductions, FewestSumsAndSameValues) {
  Program before = derived(GetParam().text);
  Program after = simplify_reductions(before);
  verify(after);
  EXPECT_EQ(backward_reductions(after), GetParam().sums) << print(before) << print(after);
  expect_same_values(before, after);
  // Nothing left to do: the same program again.
  Program again = simplify_reductions(after);
  EXPECT_EQ(backward_reductions(again), GetParam().sums);
  expect_same_values(before, again);
}

INSTANTIATE_TEST_SUITE_P(Ops, CseReductions, ::testing::ValuesIn(testing::plain_ops()), [](const auto& of) { return of.param.name; });

// A backward written by hand.
Program with_backward(const std::string& forward, const std::string& backward) {
  return parse_op("op f(x: f32[N,M], g: f32[M]) -> (y) {\n" + forward + "\n} backward (dy: f32[N,M]) -> (grad_g) {\n" + backward + "\n}");
}

TEST(CseReductionRules, InvariantFactorsArePulledOut) {
  Program p = with_backward("y[n,m] = g[m]*x[n,m]", "grad_g[m] = sum(n: g[m]*dy[n,m]/2)");
  Program q = simplify_reductions(p);
  EXPECT_NE(print(q).find("= sum(n: dy[n,m])"), std::string::npos) << print(q);
  expect_same_values(p, q);
}

// What is added up in it is rounded at each point already; x - m is not where the two cancel.
TEST(CseReductionRules, PartsThatAreKnownAreReadIfEachTermIsRounded) {
  auto sums = [](const std::string& forward, const std::string& term) {
    Program p =
        parse_op("op f(x: f32[N,M], z: f32[N,M], g: f32[M], h: f32[M]) -> (y) {\n s[m] = sum(n: x[n,m])\n t[m] = sum(n: exp(z[n,m]))\n" +
                 forward + "\n y[m] = s[m]*t[m]*u[m]\n} backward (dy: f32[M]) -> (grad_g) { grad_g[m] = sum(n: " + term + ") }");
    Program q = simplify_reductions(p);
    expect_same_values(p, q);
    return backward_reductions(q);
  };
  const std::string none = "u[m] = 1 + 0*h[m]";
  EXPECT_EQ(sums(none, "g[m]*x[n,m] - h[m]*exp(z[n,m])"), 0);
  EXPECT_EQ(sums(none, "x[n,m] - h[m]*exp(z[n,m])"), 1) << "x may be h*exp(z) to the last bit";
  EXPECT_EQ(sums(none, "g[m]*x[n,m] - h[m]"), 1) << "the same for all terms";
}

// sum(c) is 0 for a row c that is centred.
TEST(CseReductionRules, AKnownSumIsReadWhereTheRestIsZero) {
  Program p = parse_op(R"(op f(x: f32[N,M], g: f32[N]) -> (y) {
    s[n] = sum(m: x[n,m])
    y[n] = sum(m: (x[n,m] - s[n]/M)^2)
  } backward (dy: f32[N]) -> (grad_g) { grad_g[n] = sum(m: dy[n]*(x[n,m] - s[n]/M)*(x[n,m] - s[n]/M - g[n])) })");
  Program q = simplify_reductions(p);
  EXPECT_EQ(backward_reductions(q), 0) << print(q);
  expect_same_values(p, q);
}

// What is summed does not say how far: the ends of the ranges do.
TEST(CseReductionRules, ARunningSumIsReadByAnother) {
  Program p = parse_op(R"(op f(x: f64[N,T], g: f64[N]) -> (y) {
    s[n,t in 0..T] = sum(k in 0..t+1: exp(x[n,k]))
    y[n,t] = g[n]*s[n,t]
  } backward (dy: f64[N,T]) -> (grad_g) { grad_g[n] = sum(i, k in 0..i+1: exp(x[n,k])*dy[n,i]/s[n,i]) })");
  Program q = simplify_reductions(p);
  EXPECT_NE(print(q).find("sum(i: dy[n,i])"), std::string::npos) << print(q);
  expect_same_values(p, q);
}

// So the maximum that is taken out of running sums of exponentials has no gradient.
TEST(CseReductionRules, TheMaximumOfRunningSumsHasNoGradient) {
  for (const std::string range : {"0..t+1", "t..T"}) {
    const Program before = derived("op f(x: f64[N,T]) -> (y) { m[n] = max(t: x[n,t])\n y[n,t in 0..T] = m[n] + log(sum(k in " + range +
                                   ": exp(x[n,k] - m[n]))) }");
    const StashPlan plan = plan_stash(before);
    EXPECT_EQ(backward_reductions(plan.program), 1) << print(plan.program);
    expect_same_values(before, plan.program);
  }
}

TEST(CseReductionRules, ASumOfNothingIsACount) {
  Program p = with_backward("y[n,m] = g[m]*x[n,m]", "grad_g[m] = sum(n in 0..N: g[m])");
  Program q = simplify_reductions(p);
  EXPECT_EQ(backward_reductions(q), 0) << print(q);
  expect_same_values(p, q);
}

// The gradients of a norm's scale by groups: what was summed over the pixels of a channel is not summed again with the batch.
TEST(CseReductionRules, ASumThatContainsAnotherSumsWhatThatGives) {
  auto reads_of_dy = [](const std::string& scale) {
    Program p = parse_op(
        "op f(x: f32[N,M,H], r: f32[N], g: f32[M]) -> (y) {\n y[n,m,h] = r[n]*g[m]*x[n,m,h]\n"
        "} backward (dy: f32[N,M,H]) -> (grad_r, grad_g) {\n"
        " d[n,m] = sum(h: dy[n,m,h]*x[n,m,h])\n grad_r[n] = sum(m: g[m]*d[n,m])\n"
        " grad_g[m] = sum(n,h: " +
        scale + "*dy[n,m,h]*x[n,m,h]) }");
    Program q = simplify_reductions(p);
    expect_same_values(p, q);
    std::string text = print(q);
    size_t reads = 0;
    for (size_t at = 0; (at = text.find("dy[n", at)) != std::string::npos; ++at) ++reads;
    return reads;
  };
  EXPECT_EQ(reads_of_dy("r[n]"), 1u);
  EXPECT_EQ(reads_of_dy("3*r[n]^2"), 1u);
  EXPECT_EQ(reads_of_dy("f32(h)"), 2u);  // varies with what the known sum goes over
}

TEST(CseReductionRules, TheForwardsSumIsReadUnderOtherAxes) {
  Program p = with_backward("s[a] = sum(b: x[b,a]*x[b,a])\ny[n,m] = x[n,m]*s[m]", "grad_g[m] = sum(n: 3*x[n,m]^2)");
  Program q = simplify_reductions(p);
  EXPECT_EQ(backward_reductions(q), 0) << print(q);
  expect_same_values(p, q);
}

TEST(CseReductionRules, AConditionalSumIsNotTheWholeSum) {
  Program p =
      with_backward("s[m] = sum(n: x[n,m])\ny[n,m] = x[n,m]*s[m]", "grad_g[m] = sum(n if n > 0: x[n,m]) + sum(n in 0..N/2: x[n,m])");
  Program q = simplify_reductions(testing::normal_form(p));
  EXPECT_EQ(backward_reductions(q), 2) << print(q);
  expect_same_values(p, q);
}

TEST(CseReductionRules, DeviationsFromAMeanSumToZero) {
  Program p = with_backward("s[m] = sum(n: x[n,m])\ny[n,m] = x[n,m] - s[m]/N", "grad_g[m] = sum(n: g[m]*(x[n,m] - s[m]/N) + dy[n,m])");
  Program q = simplify_reductions(p);
  EXPECT_EQ(testing::body_of(q, "grad_g"), "sum(n: dy[n,m])") << print(q);
}

TEST(CseReductionRules, ProductsAreNotMultipliedOutWithoutAProof) {
  Program p = with_backward("s[m] = sum(n: x[n,m])\ny[n,m] = x[n,m] - s[m]/N", "grad_g[m] = sum(n: dy[n,m]*(x[n,m] - s[m]/N))");
  Program q = simplify_reductions(p);
  EXPECT_EQ(backward_reductions(q), 1);
  EXPECT_NE(print(q).find("- s[m] / N)"), std::string::npos) << print(q);
}

TEST(CseReductionRules, OperandsOfAMatrixProductStayDefinitions) {
  Program p = derived(
      "op mlp(x: f32[N,D], w: f32[K,D], v: f32[K]) -> (y) {\n z[n,k] = sum(d: x[n,d]*w[k,d])\n"
      " y[n,k] = sin(z[n,k])*v[k] }");
  Program q = simplify_reductions(p);
  for (const Definition& d : q.definitions())
    if (is_reduction((*q.arena)[d.body].op)) {
      EXPECT_EQ(print(q, d.body).find("cos"), std::string::npos) << print(q);
    }
  expect_same_values(p, q);
}

// The count became c's own definition, and the sum before it was taken for c.
TEST(CseReductionRules, ACountThatStaysIsNoKnownSum) {
  Program p = with_backward("y[n,m] = g[m]*x[n,m]",
                            "a[m] = sum(n: dy[n,m])\nc[m] = sum(n if x[n,m] > 0: 3)\nb[m] = sum(n: 2*dy[n,m]*sin(g[m]))\n"
                            "grad_g[m in 0..M] = c[m+1 else 1]*a[m] + b[m]");
  Program q = simplify_reductions(p);
  verify(q);
  expect_same_values(p, q);
}

// 0.1 + 0.1 + … ten times is less than 1, and 0.1 * (1 + 1 + …) is not: the last bit decides what floor gives, in both directions alike.
// And what is added up to nothing is 0, where no factor of it is negative before: -0 is another sign for copysign.
TEST(CseReductionRules, WhatJumpsReadsTheSumsAsWritten) {
  for (const std::string value : {"floor(s)", "ceil(s)", "trunc(s)", "s % 1", "fmod(s, 1)", "remainder(s, 2)", "copysign(2, s - 1)",
                                  "copysign(2, sum(k if x[k] > 9: -3))"}) {
    const std::string text = "op f(x: f64[N]) -> (y) { s = sum(k: 0.1*x[k]); y[i] = x[i]*x[i]*" + value + " }";
    const Program before = gradient(parse_op(text)), after = testing::run_passes(before, "lift, simplify, gather, inline, stash(none)");
    const DimValues dims = {{"N", 10}};
    const std::vector<double> ones(10, 1.0);
    const Arrays data = {{"x", array_of(DType::f64, {10}, ones)}, {"dy", array_of(DType::f64, {10}, ones)}};
    EXPECT_EQ(evaluate(before, data, dims, kExact).at("grad_x").at(3), evaluate(after, data, dims, kExact).at("grad_x").at(3))
        << value << print(after);
  }
}

// No sum of it alone tells that a maximum which is subtracted does not matter; all of them together do.
TEST(CseReductionRules, ASubtractedMaximumHasNoGradient) {
  const std::string head = "op f(x: f64[N,D], t: f64[N,D] const) -> (y) {\n m[n] = max(d: x[n,d])\n e[n,d] = exp(x[n,d] - m[n])\n";
  for (const auto& [text, sums] :
       std::vector<std::pair<std::string, int>>{{" p[n,d] = e[n,d]/sum(k: e[n,k])\n y = sum(n,d: p[n,d]*log(p[n,d]))", 1},
                                                {" s[n] = sum(d: e[n,d])\n y = sum(n,d: e[n,d]/s[n]*(x[n,d] - m[n] - log(s[n])))", 1},
                                                {" p[n,d] = e[n,d]/sum(k: e[n,k])\n y = sum(n,d: (0.9*t[n,d] + 0.1)*log(p[n,d]))", 1},
                                                {" p[n,d] = e[n,d]/sum(k: e[n,k])\n y[n,d] = sigmoid(p[n,d])", 1},
                                                {" p[n,d] = e[n,d]/sum(k: e[n,k])\n y = sum(n,d: (p[n,d] - t[n,d])^2)", 1},
                                                // The maximum of all that is added up: for each row alone, or as a term that stands apart.
                                                {" q[n,d] = e[n,d]/(exp(-m[n]) + sum(k: e[n,k]))\n y = sum(n,d: q[n,d]*t[n,d])", 1},
                                                // This one does matter.
                                                {" y[n,d] = e[n,d]/(1 + sum(k: e[n,k]))", 3}}) {
    Program p = testing::derived(head + text + "\n}"), after = without_idle_sums(simplify_reductions(reuse_equal_reductions(p)));
    EXPECT_EQ(testing::backward_reductions(after), sums) << print(after);
    testing::expect_same_values(p, after);
    EXPECT_LE(testing::backward_reductions(plan_stash(p).program), sums);
  }
}

// Of a symmetric matrix the gradients by row and by column are one sum, whatever the order of operands.
TEST(CseReductionRules, GradientsOfASymmetricMatrixAreOneSum) {
  for (const std::string loss :
       {"sum(i,j: c[i,j]^2)", "sum(i,j if i != j: c[i,j]^2)", "sum(i,j: if i == j then (c[i,j]-1)^2 else c[i,j]^2)"}) {
    Program p = testing::derived(
        "op f(x: f64[B,D]) -> (l) {\n m[d] = mean(b: x[b,d])\n"
        " c[i,j] = sum(b: (x[b,i]-m[i])*(x[b,j]-m[j]))\n l = " +
        loss + "\n}");
    const Program after = plan_stash(p).program;
    EXPECT_LE(testing::backward_reductions(after), 2) << loss << print(after);  // and one for the mean
    testing::expect_same_values(p, after);
  }
}

// Nor has one that is the larger of a maximum and something else: what would be divided by the number of its ties is zero, without a name.
TEST(CseReductionRules, ALargerOfASubtractedMaximumHasNoGradient) {
  for (const std::string other : {"s", "max(s, 0)", "2*s", "b[n]"}) {
    const std::string sink = "m[n] = max(max(d: x[n,d]), " + other + ")\n e[n,d] = exp(x[n,d] - m[n])\n";
    Program p = testing::derived("op f(x: f64[N,D], s: f64, b: f64[N]) -> (y) {\n" + sink + " y[n,d] = e[n,d]/(sum(k: e[n,k]) + exp(" +
                                 other + " - m[n]))\n}");
    const Program after = plan_stash(p).program;
    EXPECT_EQ(print(after).find("_ties"), std::string::npos) << other << print(after);
    testing::expect_same_values(p, after);
  }
}

TEST(CseReductionRules, LongChainsPass) {
  std::string sum = "x[n,m]";
  for (int i = 0; i < 3000; ++i) sum += " + sin(" + std::to_string(i) + "*x[n,m])";
  Program p = with_backward("y[n,m] = x[n,m]", "grad_g[m] = sum(n: dy[n,m]) + 0*g[m]");
  Program q = parse_op(
      "op f(x: f32[N,M], g: f32[M]) -> (y) { y[n,m] = x[n,m] } backward (dy: f32[N,M]) -> (grad_x) {\n"
      "grad_x[n,m] = " +
      sum + "\n}");
  EXPECT_EQ(backward_reductions(simplify_reductions(q)), 0);
}

// The mean of x + r is known, those of x and of r are not.
TEST(CseReductionsOfParts, TermsThatAreKnownTogether) {
  const Program p = parse_op(R"(op f(x: f32[N,D], r: f32[N,D]) -> (y) {
      s[n] = sum(d: x[n,d] + r[n,d])
      y[n] = sum(d: (x[n,d] + r[n,d] - s[n]/D)^3)
    } backward (dy: f32[N]) -> (grad_x) {
      z[n] = sum(d: x[n,d] + r[n,d] - s[n]/D)
      grad_x[n,d] = dy[n]*z[n] + x[n,d]
    })");
  const Program after = simplify_reductions(p);
  EXPECT_EQ(backward_reductions(after), 0) << print(after);
  expect_same_values(p, after);
}

// To the normal form x[n] - x[k] and x[k] - x[n] are one difference in one of two signs.
TEST(CseReductionsOfParts, DifferencesTurnedRound) {
  for (const std::string term : {"r[n,k]/sqrt(r[n,k]*r[n,k] + 1)", "r[n,k]^3*exp(-r[n,k]^2)", "r[n,k]"}) {
    const std::string known = term, pair = "{ r[n,k] = x[n] - x[k]; s[n] = sum(k: " + known + "); y[n] = exp(s[n])";
    const Program p = inline_injective(parse_op("op f(x: f64[N]) -> (y) " + pair + " } backward (dy: f64[N]) -> (grad_x) {" +
                                                " t[k] = sum(n: " + term + "); grad_x[n] = dy[n]*t[n] + s[n] }"));
    const Program after = simplify_reductions(p);
    EXPECT_EQ(backward_reductions(after), 0) << print(after);
    expect_same_values(p, after);
  }
}

TEST(CseReductionsOfParts, DifferencesTurnedRoundInAPart) {
  const Program p = parse_op(R"(op f(x: f64[N,D], v: f64[N,D], w: f64[N,N]) -> (y) {
      s[n in 0..N, k in 0..N] = sum(d: v[n,d]*(x[n,d] - x[k,d]))
      y[n,k] = exp(s[n,k])*w[n,k]
    } backward (dy: f64[N,N]) -> (grad_x) {
      t[k in 0..N] = sum(n in 0..N, d in 0..D: dy[n,k]*v[n,d]*(x[k,d] - x[n,d]))
      grad_x[n,d] = t[n]*x[n,d] + dy[n,n]*s[n,n]
    })");
  const Program after = simplify_reductions(p);
  EXPECT_EQ(testing::body_of(after, "t"), "sum(n: s[n,k] * dy[n,k])") << print(after);
  expect_same_values(p, after);
}

}  // namespace
}  // namespace xhat::cse_reductions_test
