// Sums of sums (cse/normalize/nested_sums.h).
#include <gtest/gtest.h>

#include "cse/normalize/nested_sums.h"
#include "tests/helpers/cse_helper.h"

namespace xhat {
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

TEST(NestedSums, StayWhereTheInnerOneIsReadElsewhereOrScaled) {
  for (const char* text :
       {"op f(x: f64[N,D]) -> (y, z) { r[n] = sum(d: x[n,d]); y = sum(n: r[n]); z[n] = r[n]*2 }",
        "op f(x: f64[N,D]) -> (y, r) { r[n] = sum(d: x[n,d]); y = sum(n: r[n]) }",
        "op f(x: f64[N,D]) -> (y) { y = sum(n: sum(d: x[n,d])/D) }", "op f(x: f64[N,D]) -> (y) { y = max(n: sum(d: x[n,d])) }",
        "op f(x: bf16[N,D]) -> (y) { y = sum(n: sum(d: x[n,d])) }"}) {
    Program p = parse_op(text);
    EXPECT_TRUE(equal(p, without_nested_sums(p))) << text;
  }
}

}  // namespace
}  // namespace xhat
