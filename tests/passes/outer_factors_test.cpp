// Numbers in front of running sums (cse/normalize/outer_factors.h).
#include <gtest/gtest.h>

#include "cse/normalize/outer_factors.h"
#include "tests/helpers/cse_helper.h"

namespace xhat::outer_factors_test {
namespace {

using testing::body_of;
using testing::expect_same_values;

std::string changed(const std::string& body) {
  Program p = parse_op("op f(x: f64[N,T], w: f64[T]) -> (y) { " + body + " }"), after = with_numbers_outside(p);
  verify(after);
  expect_same_values(p, after);
  return body_of(after, "y");
}

TEST(OuterFactors, StandInFrontOfRunningSums) {
  EXPECT_EQ(changed("y[n,t in 0..T] = sum(k in 0..t+1: x[n,k]/f64(t+1))"), "sum(k in 0..t+1: x[n,k]) / f64(t + 1)");
  EXPECT_EQ(changed("y[n,t in 0..T] = sum(k in 0..t+1: x[n,k]/(f64(t) + 1))"), "sum(k in 0..t+1: x[n,k]) / (f64(t) + 1)");
  EXPECT_EQ(changed("y[n,t in 0..T] = 1 + sum(k in 0..t+1: f64(t+2)*x[n,k]*w[k])"), "1 + sum(k in 0..t+1: x[n,k] * w[k]) * f64(t + 2)");
}

TEST(OuterFactors, StayWhereTheyMayBeZeroOrTheSumDoesNotRun) {
  for (const char* body : {"y[n,t in 0..T] = sum(k in 0..t: x[n,k]/f64(t))",      // 0, not 0/0, at t = 0
                           "y[n,t in 0..T] = sum(k in 0..t+1: x[n,k]/f64(k+1))",  // of the summed axis
                           "y[n,t in 0..T] = sum(k in 0..t+1: x[n,k]*w[t])",      // data, which may be infinite
                           "y[t in 0..T] = sum(k in 0..t+1: 1/f64(t+1))",         // nothing else
                           "y[n] = sum(k: x[n,k]/f64(n+1))"}) {                   // all of a row
    Program p = parse_op(std::string("op f(x: f64[N,T], w: f64[T]) -> (y) { ") + body + " }");
    EXPECT_TRUE(equal(p, with_numbers_outside(p))) << body << "\n" << print(with_numbers_outside(p));
  }
}

}  // namespace
}  // namespace xhat::outer_factors_test
