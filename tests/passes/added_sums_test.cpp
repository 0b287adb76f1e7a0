// Sums that are added up (cse/normalize/added_sums.h).
#include <gtest/gtest.h>

#include "cse/normalize/added_sums.h"
#include "tests/helpers/cse_helper.h"

namespace xhat::added_sums_test {
namespace {

using testing::body_of;
using testing::expect_same_values;

std::string joined(const std::string& body) {
  const std::string head = "op f(a: f64[N,D], b: f64[N,D], c: f64[D], w: f64[D,K], v: f64[D,K]) -> (y) { ";
  Program p = parse_op(head + body + " }"), after = without_added_sums(p);
  verify(after);
  expect_same_values(p, after);
  return body_of(after, "y");
}

TEST(AddedSums, BecomeOne) {
  EXPECT_EQ(joined("y[n] = sum(d: a[n,d]) + sum(k: b[n,k])"), "sum(d: a[n,d] + b[n,d])");
  EXPECT_EQ(joined("y[n] = exp(1 + sum(d: a[n,d]^2) - sum(d: b[n,d]))"), "exp(1 + sum(d: a[n,d]^2 - b[n,d]))");
  EXPECT_EQ(joined("s[n] = sum(d: a[n,d]); t[n] = sum(d: b[n,d]); y[n] = max(s[n] - t[n], 0)"), "max(sum(d: a[n,d] - b[n,d]), 0)");
  EXPECT_EQ(joined("y[n] = 1 - sum(d: a[n,d]) - sum(d: b[n,d])"), "1 - sum(d: a[n,d] + b[n,d])");
  EXPECT_EQ(joined("y = sum(n,d: a[n,d]) + sum(i,k: b[i,k])"), "sum(n,d: a[n,d] + b[n,d])");
}

// The end of a running sum is no axis that an operand lacks.
TEST(AddedSums, OfRunningSumsBecomeOne) {
  const std::string sums = "s[n,t in 0..D] = sum(d in 0..t+1: a[n,d]); r[n,t in 0..D] = sum(d in 0..t+1: b[n,d]); ";
  EXPECT_EQ(joined(sums + "y[n,t] = (s[n,t] - r[n,t])^2"), "sum(d in 0..t+1: a[n,d] - b[n,d])^2");
}

TEST(AddedSums, KeepNumbersInsideAndDivisorsOutside) {
  EXPECT_EQ(joined("y[n] = 3*sum(d: a[n,d]) - 3*sum(d: b[n,d])"), "3 * sum(d: a[n,d] - b[n,d])");
  EXPECT_EQ(joined("y[n] = sum(d: a[n,d]) - 2*sum(d: b[n,d])"), "sum(d: a[n,d] - 2 * b[n,d])");
  const std::string means = joined("y[n] = mean(d: a[n,d]) + mean(d: b[n,d])");
  EXPECT_NE(means.find("sum(d: a[n,d] + b[n,d]) / "), std::string::npos) << means;
  const std::string one_mean = joined("y[n] = mean(d: a[n,d]) + 2*sum(d: b[n,d])");
  EXPECT_EQ(one_mean.find("sum("), one_mean.rfind("sum(")) << one_mean;
}

TEST(AddedSums, Stay) {
  const std::string head = "op f(a: f64[N,D], b: f64[N,D], c: f64[D], w: f64[D,K], v: f64[D,K], h: bf16[N,D]) -> ";
  for (const char* body : {"(y) { y[n] = sum(d: a[n,d]) + sum(d: c[d]) }",                        // once for all n
                           "(y) { y[n,k] = sum(d: a[n,d]*w[d,k]) + sum(d: b[n,d]*v[d,k]) }",      // matrix products
                           "(y, s) { s[n] = sum(d: a[n,d]); y[n] = s[n] + sum(d: b[n,d]) }",      // an output
                           "(y) { s[n] = sum(d: a[n,d]); y[n] = (s[n] + sum(d: b[n,d]))*s[n] }",  // read twice
                           "(y) { y[n] = sum(d: a[n,d])*c[0] + sum(d: b[n,d]) }",                 // times what is no number
                           "(y) { y[n] = sum(d if d < 2: a[n,d]) + sum(d: b[n,d]) }",             // other terms
                           "(y) { y[n] = sum(d: a[n,d]) + sum(i: a[i,0]) }",                      // another axis
                           "(y) { y[n] = sum(d: h[n,d]) + sum(d: h[n,d]*h[n,d]) }"}) {            // rounded at their ends
    Program p = parse_op(head + body);
    EXPECT_TRUE(equal(p, without_added_sums(p))) << body << "\n" << print(without_added_sums(p));
  }
}

}  // namespace
}  // namespace xhat::added_sums_test
