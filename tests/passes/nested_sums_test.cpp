// Sums of sums (cse/normalize/nested_sums.h).
#include <gtest/gtest.h>

#include "cse/normalize/nested_sums.h"
#include "tests/helpers/cse_helper.h"

namespace xhat::nested_sums_test {
namespace {

using testing::body_of;
using testing::expect_same_values;

Program merged(const std::string& text) {
  Program p = parse_op(text), after = without_nested_sums(p);
  verify(after);
  expect_same_values(p, after);
  return after;
}

TEST(NestedSums, BecomeOne) {
  EXPECT_EQ(body_of(merged("op f(x: f64[N,D]) -> (y) { y = sum(n: sum(d: x[n,d]^2)) }"), "y"), "sum(n,d: x[n,d]^2)");
  EXPECT_EQ(body_of(merged("op f(x: f64[N,D]) -> (y) { r[n] = sum(d: x[n,d]^2); y = sum(n: r[n]) }"), "y"), "sum(n,d: x[n,d]^2)");
  EXPECT_EQ(body_of(merged("op f(x: f64[N,N]) -> (y) { r[n] = sum(d if d <= n: x[n,d]); y = sum(n if n > 2: r[n]) }"), "y"),
            "sum(n, d if 2 < n && d <= n: x[n,d])");
}

// Heads in groups: each inner sum is still added to one outer one.
TEST(NestedSums, OfGroups) {
  const std::string head = "op f(x: f64[4*G,D]) -> (y) { r[c in 0..4*G] = sum(d: x[c,d]^2); y[g in 0..G] = ";
  EXPECT_EQ(body_of(merged(head + "sum(k in 0..4: r[4*g+k]) }"), "y"), "sum(k in 0..4, d: x[4*g+k,d]^2)");
  EXPECT_EQ(body_of(merged(head + "sum(k in 0..4: r[g*4+k]) }"), "y"), "sum(k in 0..4, d: x[g*4+k,d]^2)");
  const std::string overlapping = head + "sum(k in 0..3: r[g+k]) }";
  EXPECT_TRUE(equal(parse_op(overlapping), merged(overlapping))) << "each would be computed three times";
}

TEST(NestedSums, BecomeOneAlsoWhereTheOuterOneIsWrittenTwice) {
  const Program p =
      merged("op f(x: f64[N,M,D]) -> (y, z) { r[n,m] = sum(d: x[n,m,d]); y[n] = exp(sum(m: r[n,m])); z[k] = sum(l: r[k,l])*2 }");
  EXPECT_EQ(body_of(p, "y"), "exp(sum(m,d: x[n,m,d]))");
  EXPECT_EQ(body_of(p, "z"), "sum(l,d: x[k,l,d]) * 2");
}

TEST(NestedSums, StayWhereTheInnerOneIsReadElsewhereOrScaled) {
  for (const char* text :
       {"op f(x: f64[N,D]) -> (y, z) { r[n] = sum(d: x[n,d]); y = sum(n: r[n]); z[n] = r[n]*2 }",
        "op f(x: f64[N,D]) -> (y, r) { r[n] = sum(d: x[n,d]); y = sum(n: r[n]) }",
        "op f(x: f64[N,M,D]) -> (y, z) { r[n,m] = sum(d: x[n,m,d]); y[n] = sum(m: r[n,m]); z[m] = sum(n: r[n,m]) }",
        "op f(x: f64[N,D]) -> (y, z) { r[n] = sum(d: x[n,d]); y = sum(n: r[n]); z = sum(n if n > 1: r[n]) }",
        "op f(x: f64[N,D]) -> (y) { y = sum(n: sum(d: x[n,d])/D) }", "op f(x: f64[N,D]) -> (y) { y = max(n: sum(d: x[n,d])) }",
        "op f(x: bf16[N,D]) -> (y) { y = sum(n: sum(d: x[n,d])) }", "op f(x: bf16[N,D]) -> (y) { y = mean(n: mean(d: x[n,d])) }",
        "op f(x: f64[N,D], a: f64[N]) -> (y) { y = mean(n: a[n]*sum(d: x[n,d])) }",
        "op f(x: f64[N,D]) -> (y) { y = sum(n: sum(d: x[n,d])/D)/2 }"}) {
    Program p = parse_op(text);
    EXPECT_TRUE(equal(p, without_nested_sums(p))) << text;
  }
}

// A number comes out: nothing times it is nothing.
TEST(NestedSums, BecomeOneAlsoTimesALiteral) {
  EXPECT_EQ(body_of(merged("op f(x: f64[N,D]) -> (y) { y = sum(n: -0.5*sum(d: x[n,d])) }"), "y"), "-0.5 * sum(n,d: x[n,d])");
  EXPECT_EQ(body_of(merged("op f(x: f64[N,D]) -> (y) { r[n] = -sum(d: x[n,d])/3; y = sum(n: r[n])/N }"), "y"), "-sum(n,d: x[n,d]) / 3 / N");
}

TEST(NestedSums, MeansOfMeansAreOneSum) {
  EXPECT_EQ(body_of(merged("op f(x: f64[N,D]) -> (y) { y = mean(n: mean(d: x[n,d])) }"), "y"), "sum(n,d: x[n,d]) / D / N");
  EXPECT_EQ(body_of(merged("op f(x: f64[N,D]) -> (y) { r[n] = mean(d: x[n,d]^2)*3; y = -mean(n: r[n]) }"), "y"),
            "-(sum(n,d: x[n,d]^2) / D * 3 / N)");
  EXPECT_EQ(body_of(merged("op f(x: f64[N,D,K]) -> (y) { y[k] = mean(n: 2*mean(d: x[n,d,k])) }"), "y"), "2 * (sum(n,d: x[n,d,k]) / D) / N");
}

TEST(NestedSums, TermsThatAConditionMakesNeutralAreLeftOut) {
  auto without = [](const std::string& body) {
    Program p = parse_op("op f(x: f64[N,N], s: f64[N]) -> (y) { y[n in 0..N] = " + body + " }"), after = without_neutral_terms(p);
    verify(after);
    expect_same_values(p, after);
    return body_of(after, "y");
  };
  EXPECT_EQ(without("prod(k: if k <= n then x[n,k] else 1)"), "prod(k if k <= n: x[n,k])");
  EXPECT_EQ(without("2*sum(k if k > 1: if k <= n then x[n,k] else 0)"), "2 * sum(k if 1 < k && k <= n: x[n,k])");
  EXPECT_EQ(without("max(k: if k <= n then x[n,k] else -inf)"), "max(k if k <= n: x[n,k])");
  EXPECT_EQ(without("prod(k: if k <= n then x[n,k] else 0)"), "prod(k: if k <= n then x[n,k] else 0)");
  EXPECT_EQ(without("sum(k: if s[k] > 0 then x[n,k] else 0)"), "sum(k: if 0 < s[k] then x[n,k] else 0)");
  EXPECT_EQ(without("sum(k: x[n,k]*(if k <= n then s[k] else 0))"), "sum(k: x[n,k] * (if k <= n then s[k] else 0))");
}

}  // namespace
}  // namespace xhat::nested_sums_test
