// Tensors that are kept from their end (cse/normalize/orientation.h).
#include <gtest/gtest.h>

#include "cse/normalize/orientation.h"
#include "tests/helpers/cse_helper.h"

namespace xhat::orientation_test {
namespace {

using testing::body_of;
using testing::expect_same_values;

TEST(Orientation, IsThatOfWhatIsRead) {
  Program p = parse_op(
      "op f(x: f64[N,D]) -> (y) {\n"
      " e[n in 0..N, d in 0..D] = exp(x[N-1-n,D-1-d])\n"
      " s[n] = sum(d: e[n,d])\n"
      " y[n in 0..N, d in 0..D] = e[N-1-n,D-1-d]/s[N-1-n]\n}");
  Program straight = in_one_direction(p);
  verify(straight);
  EXPECT_EQ(body_of(straight, "e"), "exp(x[n,d])");
  EXPECT_EQ(body_of(straight, "s"), "sum(d: e[n,d])");
  EXPECT_EQ(body_of(straight, "y"), "e[n,d] / s[n]");
  expect_same_values(p, straight);
}

TEST(Orientation, OfOutputsAndOfWhatIsReadFromBothEndsStays) {
  for (const char* text :
       {"op f(x: f64[N]) -> (y) { y[n in 0..N] = x[N-1-n] }", "op f(x: f64[N]) -> (y) { e[n] = x[N-1-n]*x[n]; y[n in 0..N] = e[N-1-n] }",
        "op f(x: f64[N]) -> (y) { e[n in 0..N] = x[N-1-n]*f64(n); y[n] = e[n]*x[n] }",
        "op f(x: f64[N]) -> (y) { e[n in 0..N-1] = x[N-2-n] - x[N-1-n]; y[n in 0..N-1] = e[n]*x[n] }"}) {
    Program p = parse_op(text);
    Program after = in_one_direction(p);
    verify(after);
    expect_same_values(p, after);
    if (std::string(text).find("N-2") == std::string::npos) {
      EXPECT_TRUE(equal(p, after)) << text << print(after);
    }
  }
}

TEST(Orientation, RunningSumsWalkForward) {
  Program p = parse_op(
      "op f(x: f64[N,D]) -> (y) {\n t[n, d in 0..D] = x[n,D-1-d]\n u[n, d in 0..D] = sum(k in 0..D-d: t[n,d+k])\n"
      " y[n, d in 0..D] = u[n,D-1-d]*x[n,d]\n}");
  Program after = in_one_direction(p);
  verify(after);
  EXPECT_EQ(body_of(after, "u"), "sum(k in 0..d+1: t[n,k])");
  expect_same_values(p, after);
  // A window has no end that stays.
  Program window = parse_op("op f(x: f64[N]) -> (y) { y[n in 0..N-2] = sum(k in 0..3: x[n+2-k]*f64(k)) }");
  EXPECT_TRUE(equal(window, in_one_direction(window)));
}

TEST(Orientation, ReadsWithAValueOutsideAreTurnedToo) {
  Program p =
      parse_op("op f(x: f64[N]) -> (y) {\n e[n in 0..N] = 2*x[N-1-n]\n y[n in 0..N] = e[n-1 else 7] + e[N-1-n] + e[clamp(n,0,N-1)]\n}");
  Program after = in_one_direction(p);
  verify(after);
  EXPECT_EQ(body_of(after, "e"), "2 * x[n]");
  expect_same_values(p, after);
}

}  // namespace
}  // namespace xhat::orientation_test
