// Sums that are read only to be added up (cse/algebra/joined_sums.h).
#include <gtest/gtest.h>

#include "cse/algebra/joined_sums.h"
#include "tests/helpers/cse_helper.h"

namespace xhat::joined_sums_test {
namespace {

using testing::backward_reductions;
using testing::body_of;
using testing::expect_same_values;

// The gradient as it would be, with sums of these bodies.
Program with_backward(const std::string& sums, const std::string& grad) {
  return parse_op(
      "op f(x: f64[N,D], v: f64[D]) -> (y) {\n  y[n,d] = x[n,d] * v[d]\n} backward (dy: f64[N,D]) -> (grad_x, grad_v) {\n  grad_x[n,d] = "
      "v[d] * dy[n,d]\n" +
      sums + "  grad_v[d] = " + grad + "\n}\n");
}

std::string joined(const std::string& sums, const std::string& grad) {
  const Program p = with_backward(sums, grad), after = with_joined_sums(p);
  verify(after);
  expect_same_values(p, after);
  return std::to_string(backward_reductions(after)) + ": " + body_of(after, "grad_v");
}

TEST(JoinedSums, AreOneSum) {
  const std::string two = "  s[d] = sum(n: x[n,d] * dy[n,d])\n  t[k in 0..D] = sum(m in 0..N: dy[m,k] * dy[m,k])\n";
  EXPECT_EQ(joined(two, "s[d] + t[d]"), "1: s_1[d]");
  EXPECT_EQ(joined(two, "3 * s[d] / v[d] - t[d] * v[d] + v[d]"), "1: v[d] + s_1[d]");
  EXPECT_EQ(joined(two, "v[d] * (v[d] - t[d] - s[d])"), "1: v[d] * (v[d] + t_1[d])");
  EXPECT_EQ(joined(two, "if v[d] > 0 then s[d] - t[d] else 0"), "1: if 0 < v[d] then s_1[d] else 0");
  EXPECT_EQ(joined(two + "  u[d] = sum(n: x[n,d])\n", "s[d] + t[d] - 2 * u[d]"), "1: s_1[d]");
}

TEST(JoinedSums, StayWhereTheyAreReadElsewhereOrGoOverSomethingElse) {
  for (const auto& [sums, grad] : std::vector<std::pair<std::string, std::string>>{
           {"  s[d] = sum(n: x[n,d] * dy[n,d])\n  t[d] = sum(n: dy[n,d] * dy[n,d])\n", "s[d] - t[d] + s[d] * v[d]"},
           {"  s[d] = sum(n: x[n,d] * dy[n,d])\n  t[d] = sum(n if n > 1: dy[n,d] * dy[n,d])\n", "s[d] - t[d]"},
           {"  s[d] = sum(n: x[n,d] * dy[n,d])\n  t[d] = sum(n in 0..d: dy[0,d] * v[n])\n", "s[d] - t[d]"},
           {"  s[d] = sum(n: x[n,d] * dy[n,d])\n  t = sum(n, k: dy[n,k] * dy[n,k])\n", "s[d] - t"},
           {"  s[d] = sum(n: x[n,d] * dy[n,d])\n  t[d] = sum(n: dy[n,d] * dy[n,d])\n", "s[d] * t[d] + 1"},
           // t would wait for w.
           {"  s[d] = sum(n: x[n,d] * dy[n,d])\n  t[d] = sum(n: dy[n,d])\n  w[d] = sum(n: x[n,d])\n", "s[d] + w[d] * t[d]"}}) {
    const Program p = with_backward(sums, grad);
    EXPECT_TRUE(equal(p, with_joined_sums(p))) << sums << grad;
  }
}

// Of an axis of rows and one of columns, each sum goes its own way through memory.
TEST(JoinedSums, AreNotOfRowsAndColumns) {
  const Program p = testing::derived("op f(t: f64[N], w: f64[N,N]) -> (e) { e = sum(i,j if i != j: w[i,j]*cos(t[i]-t[j])) }");
  const StashPlan plan = plan_stash(p);
  EXPECT_EQ(backward_reductions(plan.program), 2) << print(plan.program);
  expect_same_values(p, plan.program);
}

// Gradients that were differences of sums.
TEST(JoinedSums, OfABiasThatIsUsedTwice) {
  const Program p = testing::derived(
      "op f(x: f64[N,D], b: f64[D]) -> (y) {\n m[n] = max(d: b[d] + x[n,d])\n"
      " y[n,d] = exp(x[n,d] + b[d] - m[n])/sum(k: exp(x[n,k] + b[k] - m[n]))\n}");
  const StashPlan plan = plan_stash(p);
  EXPECT_EQ(backward_reductions(plan.program), 2) << print(plan.program);
  expect_same_values(p, plan.program);
}

// Of a tensor that is read at places that data find, a sum for each place in place of one for each read.
TEST(JoinedSums, ThatAddByPlace) {
  const Program p = testing::derived(
      "op f(x: f64[N,3], f: i32[K,2] const, w: f64[K,3] const) -> (e) {\n a[k,d] = x[f[k,1],d]-x[f[k,0],d]\n"
      " e = sum(k,d: w[k,d]*x[f[k,0],d]*a[k,(d+1)%3]) + sum(k: sqrt(sum(d: a[k,d]^2)+1))\n}");
  const StashPlan plan = plan_stash(p);
  size_t by_place = 0;
  for (const Definition& d : plan.program.backward.definitions) {
    const Node& n = (*plan.program.arena)[d.body];
    by_place += is_reduction(n.op) && print(plan.program, reduce_condition(n)).find("f[") != std::string::npos;
  }
  EXPECT_EQ(by_place, 2U) << print(plan.program);
  expect_same_values(p, plan.program);
}

}  // namespace
}  // namespace xhat::joined_sums_test
