// Reductions that are written several times (cse/normalize/repeated_reductions.h).
#include <gtest/gtest.h>

#include "cse/normalize/repeated_reductions.h"
#include "fusion/plan/plan.h"
#include "tests/helpers/cse_helper.h"

namespace xhat::repeated_reductions_test {
namespace {

using testing::body_of;
using testing::expect_same_values;

Program named(const std::string& text) {
  Program p = parse_op(text), after = without_repeated_reductions(p);
  verify(after);
  expect_same_values(p, after);
  return after;
}

TEST(RepeatedReductions, AreOneDefinition) {
  const Program p = named(
      "op f(x: f64[N,K], w: f64[K,D]) -> (y) {\n  m[n] = max(d: sum(k: x[n,k]*w[k,d]))\n"
      "  y[n,d] = exp(sum(k: w[k,d]*x[n,k]) - m[n])\n}");
  EXPECT_EQ(body_of(p, "m_sum"), "sum(k: x[n,k] * w[k,d])");
  EXPECT_EQ(body_of(p, "m"), "max(d: m_sum[n,d])");
  EXPECT_EQ(body_of(p, "y"), "exp(m_sum[n,d] - m[n])");
}

// Each has one reduction fewer than is written.
TEST(RepeatedReductions, WhateverAxesAndPartsAreCalled) {
  for (const auto& [text, left] : std::vector<std::pair<std::string, int>>{
           {"op f(x: f64[N,D]) -> (y) { s[n] = sum(d: x[n,d]^2); y[n,d] = x[n,d]/sum(k: x[n,k]^2) + s[n] }", 1},
           {"op f(x: f64[N,D]) -> (y) { a[d,n] = x[n,d]*2; s[n] = sum(d: a[d,n]); y[n] = s[n]*sum(k: 2*x[n,k]) }", 1},
           {"op f(x: f64[N,D], w: f64[D]) -> (y) { s[n] = max(d: x[n,d] + w[d]); y[n] = s[n] - max(k: 1*(w[k] + x[n,k])) }", 1},
           {"op f(x: f64[N,D,K]) -> (y) { s[n] = sum(d,k: x[n,d,k]); y[n] = s[n]*sum(k,d: x[n,d,k]) }", 1},
           {"op f(x: f64[N,D], w: f64[D]) -> (y) { s[d,n] = sum(k: x[n,k]*w[d]); y[n,d] = sum(j: w[d]*x[n,j])*s[d,n] }", 1},
           {"op f(x: f64[N,D]) -> (y) { s[n] = sum(d: x[n,d]^2); y[n,d] = x[n,d]/sum(k: x[n,k]*x[n,k]) + s[n] }", 1},
           {"op f(x: f64[N,D]) -> (y) { s[n] = sum(d: x[n,d]^3); y[n,d] = x[n,d]/sum(k: x[n,k]*x[n,k]) + s[n] }", 2},
           {"op f(x: f64[N,D]) -> (y) { v[n] = sum(d: (x[n,d] - sum(k: x[n,k])/D)^2); y[n] = v[n]*sum(j: x[n,j]) }", 2},
           // The first is asked for in a part of the range only.
           {"op f(x: f64[N,N,D]) -> (y) { m[i] = max(j in 0..i+1: sum(d: x[i,j,d])); y[i,j] = sum(d: x[i,j,d]) - m[i] }", 2}})
    EXPECT_EQ(distinct_reductions(named(text)), left) << print(named(text));
}

// What is the same for all of a group is computed once for the group.
TEST(RepeatedReductions, OfGroups) {
  Program p = named("op f(x: f64[N,4*G]) -> (y) { y[n,c] = x[n,c] - sum(k in 0..4: x[n,4*(c/4)+k])/4 }");
  EXPECT_EQ(body_of(p, "y"), "x[n,c] - y_sum[n,c/4] / 4");
  EXPECT_EQ(body_of(p, "y_sum"), "sum(k in 0..4: x[n,4*c_1+k])");
  p = named(
      "op f(x: f64[N,4*G]) -> (y) {\n  m[n,g in 0..G] = max(k in 0..4: x[n,4*g+k])\n"
      "  y[n,c] = exp(x[n,c] - m[n,c/4]) - max(k in 0..4: x[n,4*(c/4)+k])\n}");
  EXPECT_EQ(body_of(p, "y"), "exp(x[n,c] - m[n,c/4]) - m[n,c/4]");
  p = parse_op("op f(x: f64[N,4*G], w: f64[4*G]) -> (y) { y[n,c] = sum(k in 0..4: x[n,4*(c/4)+k]*w[c]) }");
  EXPECT_TRUE(equal(p, without_repeated_reductions(p)));
}

TEST(RepeatedReductions, OthersStay) {
  for (const char* text :
       {"op f(x: f64[N,D]) -> (y) { y[n] = sum(d: x[n,d]) - sum(d: x[n,d]^2) }",
        "op f(x: f64[N,N]) -> (y) { y[n] = sum(d: x[n,d])*sum(d: x[d,n]) }",
        "op f(x: f64[N,D,K]) -> (y) { y[n] = prod(d,k: x[n,d,k]) - prod(k,d: x[n,d,k]) }",
        "op f(x: f64[N,D]) -> (y) { y[n] = sum(d if d > 1: x[n,d])*sum(d if d > 2: x[n,d]) }",
        "op f(x: f64[N,D]) -> (y) { y[n] = if n > 0 then sum(d: x[n-1,d])*max(k in 0..D: sum(d: x[n-1,d])*x[n,k]) else 0 }"}) {
    Program p = parse_op(text);
    EXPECT_TRUE(equal(p, without_repeated_reductions(p))) << print(without_repeated_reductions(p));
  }
}

}  // namespace
}  // namespace xhat::repeated_reductions_test
