// Prefix sums in steps: what they compute, how many steps there are, and what stays as it is.
#include "fusion/plan/prefix_sums.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "expr/eval/definition.h"
#include "expr/index/recurrence.h"
#include "tests/helpers/golden.h"

namespace xhat::prefix_sums_test {
namespace {

using namespace xhat::testing;

bool walked(const Program& p, const Definition& d) {
  std::vector<Id> axes;
  for (const AxisRange& r : d.axes) axes.push_back(r.axis);
  return recurrence_of(*p.arena, d.target(), axes, d.body).has_value();
}

size_t definitions(const std::string& text, const DimValues& sizes) {
  const Program p = infer_program(parse_op(text)), made = prefix_sums_by_steps(p, sizes, {});
  const bool walks = std::ranges::any_of(made.forward.definitions, [&](const Definition& d) { return walked(made, d); });
  if (!walks) verify(made);  // no pass but those of plans knows a tensor that reads itself
  const Arrays data = random_data(p, sizes, 4),
               found = walks ? evaluate_by_definition(made, data, sizes, Rounding::exact) : evaluate_on(made, data, sizes);
  EXPECT_EQ(difference(evaluate_on(p, data, sizes), found, 1e-9), "") << print(made);
  return made.forward.definitions.size();
}

TEST(PrefixSums, RunInStepsOfFourReads) {
  const DimValues sizes = {{"B", 3}, {"N", 150}};
  // The terms, steps of 1, 4, 16 and 64, the result.
  EXPECT_EQ(definitions("op f(x: f32[B,N]) -> (y) { y[b, i in 0..N] = sum(k in 0..i+1: x[b,k]) }", sizes), 6u);
  EXPECT_EQ(definitions("op f(x: f32[N,B]) -> (y) { y[i in 0..N, b] = max(k in 0..i+1: x[k,b]) }", sizes), 6u);
  EXPECT_EQ(definitions("op f(x: f32[N]) -> (y) { y[i in 0..N] = min(k in i..N: x[k]^2) }", sizes), 6u);
  EXPECT_EQ(definitions("op f(x: f32[N]) -> (y) { y[i in 0..N] = sum(k in 0..i: x[k]) }", sizes), 6u);
  EXPECT_EQ(definitions("op f(x: f32[N]) -> (y) { y[i in 0..N] = sum(k in i+2..N: x[k]) }", sizes), 6u);
  EXPECT_EQ(definitions("op f(x: f32[N]) -> (y) { y[i in 0..N-9] = sum(k in 3..i+7: x[k]) }", sizes), 6u);
  EXPECT_EQ(definitions("op f(x: f32[N]) -> (y) { y[b in 0..B, i in 0..N] = sum(k in 0..i+1: x[k]) }", sizes), 6u);
  EXPECT_EQ(definitions("op f(x: f32[N]) -> (y) { y[i in 0..N] = sum(k in 0..i+1 if x[k] > 0: x[k]) }", sizes), 6u);
  EXPECT_EQ(definitions("op f(x: f32[N]) -> (y) { y[i in 0..N] = max(k in i..N if x[k] < 1: x[k]) }", sizes), 6u);
  // Offsets of segments.
  EXPECT_EQ(definitions("op f(n: i32[N]) -> (y) { y[i in 0..N] = sum(k in 0..i+1: n[k]) }", sizes), 6u);
  EXPECT_EQ(definitions("op f(n: i32[N]) -> (y) { y[i in 0..N+1] = sum(k in 0..i: i64(abs(n[k])) % 9) }", sizes), 6u);
}

// Where other axes fill vectors: one operation for each element.
TEST(PrefixSums, WalkBesideVectors) {
  const DimValues sizes = {{"N", 150}, {"D", 9}};
  auto count = [&](const std::string& body) {
    return definitions("op f(x: f32[N,D], a: f32[N], b: f32[D]) -> (y) { " + body + " }", sizes);
  };
  EXPECT_EQ(count("y[i in 0..N, d] = sum(k in 0..i+1: x[k,d]^2)"), 1u);
  EXPECT_EQ(count("y[i in 0..N, d] = max(k in i..N: x[k,d])"), 1u);
  EXPECT_EQ(count("y[i in 0..N, d] = min(k in 0..i+1: lgamma(x[k,d]^2+1))"), 2u) << "terms that are dear";
  EXPECT_EQ(count("y[i in 0..N-9, d] = sum(k in 3..i+7 if x[k,0] > 0: x[k,d])"), 2u);
  EXPECT_EQ(count("y[i in 0..N, d] = sum(k in 0..i+1: sigmoid(b[d])^f32(i-k)*x[k,d])"), 2u) << "and a table of weights";
  EXPECT_EQ(count("y[i in 0..N, d] = sum(k in i..N: exp(-b[d]^2*f32(k-i))*x[k,d])"), 2u);
  EXPECT_EQ(count("y[i in 0..N, d] = sum(k in 0..i: 0.9^f32(i-k)*x[k,d])"), 3u) << "and the results beside";
  const std::string levels = "l[i in 0..N] = sum(k in 0..i+1: -softplus(a[k]))\n";
  EXPECT_EQ(count(levels + "y[i in 0..N, d] = sum(k in 0..i+1: exp(l[i]-l[k])*x[k,d])"), 9u) << "six of the levels";
  EXPECT_EQ(count("y[i in 0..N, d in 0..7] = sum(k in 0..i+1: x[k,d])"), 6u) << "too few";
  EXPECT_EQ(count("y[i in 0..40, d in 0..9] = sum(k in 0..i+1: a[k])"), 1u) << "the terms know nothing of d: short, so all pairs";
}

// One end moves with an axis of the result, what else bounds it is a condition of the terms.
TEST(PrefixSums, BothEndsMay) {
  const DimValues sizes = {{"N", 120}};
  auto count = [&](const std::string& body) { return definitions("op f(x: f32[N,N]) -> (y) { " + body + " }", sizes); };
  EXPECT_EQ(count("y[i, j in 0..N] = sum(u in j+1..i: exp(x[i,u]))"), 6u);
  EXPECT_EQ(count("y[i in 0..N, j] = sum(u in j..i+1: x[u,j])"), 1u);
  EXPECT_EQ(count("y[i in 0..N, j in 0..N] = sum(u in i..j: x[u,0])"), 2u);
  EXPECT_EQ(count("y[i, j in 0..N] = sum(u in max(j,3)..min(i+1,N-2) if x[i,u] > 0: x[i,u])"), 6u);
  EXPECT_EQ(count("y[i, j in 0..N] = sum(u in max(0,j-3)..N: x[i,u])"), 6u);
  EXPECT_EQ(count("y[i in 0..N, t in 0..N] = sum(u in i..t+1: 0.9^f32(t-u)*x[u,i])"), 7u) << "and a table of powers";
  EXPECT_EQ(count("y[i, j in 0..N] = sum(u in max(0,j-3)..j+1: x[i,u])"), 1u) << "a window: both ends move with j";
  EXPECT_EQ(count("y[i in 0..N, j in 0..N] = sum(u in j+1..i: x[u,j]*x[i,u])"), 1u) << "the terms depend on either axis";
}

// All pairs in registers take less than the copies of the steps.
TEST(PrefixSums, ProductsOfMatricesRunInStepsLater) {
  const std::string text = "op f(g: f32[N,D], v: f32[N,D]) -> (s) { s[d in 0..D, e in 0..D, t in 0..N] = sum(u in 0..t+1: g[u,d]*v[u,e]) }";
  EXPECT_EQ(definitions(text, {{"N", 150}, {"D", 9}}), 1u);
  EXPECT_EQ(definitions(text, {{"N", 257}, {"D", 9}}), 7u);
  EXPECT_EQ(definitions(text, {{"N", 150}, {"D", 3}}), 6u) << "columns that fill no vector";
}

TEST(PrefixSums, WeightsCarryOver) {
  const DimValues sizes = {{"B", 3}, {"N", 150}};
  auto count = [&](const std::string& body) { return definitions("op f(x: f32[B,N], a: f32[B]) -> (y) { " + body + " }", sizes); };
  // Beside the terms, steps and the result a table of powers.
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in 0..t+1: 0.9^f32(t-k)*x[b,k])"), 7u);
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in 0..t+1: (1-a[b])*sigmoid(a[b])^f32(2*t-2*k)*x[b,k])"), 7u);
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in 0..t: 0.9^f32(t-k)*x[b,k])"), 7u) << "without its own";
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in 0..t: 0.9^(f32(t)-f32(k)+2)*x[b,k])"), 7u);
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in t..N: x[b,k]*pow(a[b]^2, f32(k-t)))"), 7u);
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in t+3..N: 0.9^f32(k-t)*x[b,k])"), 7u);
  // A factor of the result, of which the terms know nothing.
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in 0..t+1: 0.9^f32(t-k)*x[b,k]*cos(x[b,t]))"), 7u);
}

TEST(PrefixSums, ExponentialsOfTheDistance) {
  const DimValues sizes = {{"B", 3}, {"N", 150}};
  auto count = [&](const std::string& body) { return definitions("op f(x: f32[B,N], a: f32[B]) -> (y) { " + body + " }", sizes); };
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in 0..t+1: exp(-a[b]*f32(t-k))*x[b,k])"), 7u);
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in 0..t+1: exp(f32(k-t)/(1+a[b]^2))*x[b,k])"), 7u);
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in 0..t: exp(-0.1*f32(t-k-1))*x[b,k])"), 7u);
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in t..N: x[b,k]*exp(a[b]*f32(t-k)*0.5))"), 7u);
  // With what the term alone, or the result alone, adds to the exponent, if the weight falls for sure.
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in 0..t: exp(sin(x[b,k])-exp(a[b])*f32(t-1-k))*x[b,k])"), 7u);
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in t+1..N: x[b,k]*exp(cos(x[b,t])-a[b]^2*f32(k-t-1)+1))"), 7u);
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in 0..t+1: exp(sin(x[b,k])-a[b]*f32(t-k))*x[b,k])"), 1u) << "it may grow";
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in 0..t+1: exp(x[b,k]-x[b,t]-a[b]^2*f32(t-k)))"), 1u) << "exp(x[k]) may be too large by itself";
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in t..N: x[b,k]*exp(a[b]*f32(t+k)))"), 1u) << "no distance";
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in t..N: x[b,k]*exp(x[b,t]*f32(t-k)))"), 1u) << "a rate of each result";
}

// exp(-a)^4096 would be off by 4096 times the rounding of exp(-a).
TEST(PrefixSums, ExponentialsOfTheDistanceAreNoPowers) {
  const Program p = infer_program(parse_op("op f(x: f32[N], a: f32) -> (y) { y[t in 0..N] = sum(k in 0..t+1: exp(-a*f32(t-k+3))*x[k]) }"));
  const std::string made = print(prefix_sums_by_steps(p, {{"N", 150}}, {}));
  EXPECT_NE(made.find("y_powers"), std::string::npos) << made;
  EXPECT_EQ(made.find("pow("), std::string::npos) << made;
  EXPECT_EQ(made.find("^"), std::string::npos) << made;
}

// The nearest term of t is t - 1, with the weight 1. As the weight of one place, times that of none less, it would be 0 times infinity.
TEST(PrefixSums, TheNearestTermCountsAsWritten) {
  const DimValues sizes = {{"N", 60}};
  const Program p =
      infer_program(parse_op("op f(x: f32[N], a: f32) -> (y) { y[t in 0..N] = sum(k in 0..t: exp(-exp(a)*f32(t-1-k))*x[k]) }"));
  const Program made = prefix_sums_by_steps(p, sizes, {});
  ASSERT_GT(made.forward.definitions.size(), 1u);
  Arrays data = random_data(p, sizes, 4);
  data.at("a").reals[0] = 9;
  const Array y = evaluate_on(made, data, sizes).at("y");
  for (size_t t = 1; t < 60; ++t) EXPECT_EQ(y.reals[t], data.at("x").reals[t - 1]) << t;
}

TEST(PrefixSums, ExponentialsThatFall) {
  const DimValues sizes = {{"B", 3}, {"N", 150}};
  auto count = [&](const std::string& body) { return definitions("op f(x: f32[B,N], z: f32[B,N]) -> (y) { " + body + " }", sizes); };
  EXPECT_EQ(count("m[b, i in 0..N] = max(k in 0..i+1: x[b,k]); y[b, i in 0..N] = sum(k in 0..i+1: exp(x[b,k]-m[b,i]))"), 12u);
  EXPECT_EQ(count("m[b, i in 0..N] = max(k in i..N: x[b,k]); y[b, i in 0..N] = sum(k in i..N: z[b,k]*exp(x[b,k]-m[b,i]))"), 12u);
  EXPECT_EQ(count("c[b, i in 0..N] = sum(k in 0..i+1: -abs(z[b,k])); y[b, i in 0..N] = sum(k in 0..i+1: exp(c[b,i]-c[b,k])*x[b,k])"), 12u);
  // The level is the terms' here: the gradient of the first.
  EXPECT_EQ(count("m[b, i in 0..N] = max(k in 0..i+1: x[b,k]); y[b, k in 0..N] = sum(i in k..N: z[b,i]*exp(x[b,k]-m[b,i]))"), 12u);
  // An exponent that may rise could overflow where the terms do not.
  EXPECT_EQ(count("c[b, i in 0..N] = sum(k in 0..i+1: z[b,k]); y[b, i in 0..N] = sum(k in 0..i+1: exp(c[b,i]-c[b,k])*x[b,k])"), 7u);
  EXPECT_EQ(count("y[b, i in 0..N] = sum(k in 0..i+1: exp(z[b,i]-z[b,k])*x[b,k])"), 1u);
}

TEST(PrefixSums, TiesOfRunningExtremes) {
  const DimValues sizes = {{"B", 3}, {"N", 150}};
  auto count = [&](const std::string& body) { return definitions("op f(x: f32[B,N], z: f32[B,N]) -> (y) { " + body + " }", sizes); };
  EXPECT_EQ(count("m[b, i in 0..N] = max(k in 0..i+1: x[b,k]); y[b, i in 0..N] = sum(k in 0..i+1 if x[b,k] == m[b,i]: z[b,k])"), 12u);
  EXPECT_EQ(count("m[b, i in 0..N] = max(k in 0..i+1: x[b,k]); y[b, k in 0..N] = sum(i in k..N if x[b,k] == m[b,i]: z[b,i])"), 12u);
  EXPECT_EQ(count("m[b, i in 0..N] = min(k in i..N: x[b,k]); y[b, k in 0..N] = sum(i in 0..k+1 if x[b,k] == m[b,i]: z[b,i])"), 12u);
  // An extreme of something else, or from the other side.
  EXPECT_EQ(count("m[b, i in 0..N] = max(k in 0..i+1: z[b,k]); y[b, i in 0..N] = sum(k in 0..i+1 if x[b,k] == m[b,i]: z[b,k])"), 7u);
  EXPECT_EQ(count("m[b, i in 0..N] = max(k in i..N: x[b,k]); y[b, i in 0..N] = sum(k in 0..i+1 if x[b,k] == m[b,i]: z[b,k])"), 7u);
}

// Masked with infinities: from a level of -inf nothing is carried to a finite one.
TEST(PrefixSums, InfiniteLevels) {
  const DimValues sizes = {{"N", 60}};
  const Program p = infer_program(
      parse_op("op f(x: f32[N]) -> (y) { m[i in 0..N] = max(k in 0..i+1: x[k]); y[i in 0..N] = sum(k in 0..i+1: exp(x[k]-m[i])) }"));
  Arrays data = random_data(p, sizes, 4);
  for (size_t i = 0; i < 20; ++i) data.at("x").reals[i] = -INFINITY;
  data.at("x").reals[40] = -INFINITY;
  EXPECT_EQ(difference(evaluate_on(p, data, sizes), evaluate_on(prefix_sums_by_steps(p, sizes, {}), data, sizes), 1e-9), "");
}

TEST(PrefixSums, OtherReductionsStay) {
  const DimValues sizes = {{"B", 3}, {"N", 150}};
  for (const std::string body :
       {"sum(k in 0..i+1: x[k]*x[i])", "sum(k in 0..2*i/2+1: x[k])", "prod(k in 0..i+1: x[k])", "sum(k in i/2..i+1: x[k])",
        "sum(k in 0..i+1 if x[k] > x[i]: x[k])", "sum(k: x[k])", "sum(k in 0..i+1: 0.9^f32(k-i)*x[k])",
        "sum(k in 0..i+1: 0.9^f32(i+k)*x[k])", "sum(k in 0..i+1: x[i]^f32(i-k)*x[k])"})
    EXPECT_EQ(definitions("op f(x: f32[N]) -> (y) { y[i in 0..N] = " + body + " }", sizes), 1u) << body;
  EXPECT_EQ(definitions("op f(x: f32[N]) -> (y) { y[i in 0..N] = sum(k in 0..i+1: x[k]) }", {{"N", 40}}), 1u) << "short";
}

}  // namespace
}  // namespace xhat::prefix_sums_test
