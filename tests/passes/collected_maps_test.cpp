// Like terms of maps of the backward (cse/algebra/collected_maps.h).
#include <gtest/gtest.h>

#include "cse/algebra/collected_maps.h"
#include "tests/helpers/cse_helper.h"

namespace xhat::collected_maps_test {
namespace {

using testing::body_of;
using testing::expect_same_values;

std::string collected(const std::string& grad, const std::string& more = "") {
  const Program p = parse_op(
      "op f(x: f64[N,D], t: f64[N,D], q: f64[N]) -> (y, m) {\n  y[n,d] = x[n,d] * t[n,d] * q[n]\n  m[n] = max(d: x[n,d])\n} backward (dy: "
      "f64[N,D], dm: f64[N]) -> (grad_x, grad_t, grad_q) {\n  grad_t[n,d] = dy[n,d]\n  grad_q[n] = dm[n]\n" +
      more + "  grad_x[n,d] = " + grad + "\n}\n");
  const Program after = with_collected_maps(p);
  verify(after);
  expect_same_values(p, after);
  return body_of(after, "grad_x");
}

TEST(CollectedMaps, LikeTermsOfOpenedSumsAreOne) {
  EXPECT_EQ(collected("dy[n,d] * ((q[n] - 1) * t[n,d] - q[n] * (t[n,d] - 0.3))"), "dy[n,d] * (0.3 * q[n] - t[n,d])");
  EXPECT_EQ(collected("2 * (q[n] / 3 - 1) * t[n,d] - 4 * q[n] * (t[n,d] + 5 * (t[n,d] - 1))"),
            "20 * q[n] - (23.333333333333332 * q[n] + 2) * t[n,d]");
}

// x - q is exact; and q*(t - 0.3) is no more than that. An extreme is subtracted as it was taken.
TEST(CollectedMaps, WhatWouldLoseDigitsOrCostAsMuchStays) {
  for (const char* grad : {"dy[n,d] * (x[n,d] - q[n]) - t[n,d] * x[n,d]", "dy[n,d] * q[n] * (t[n,d] - 0.3)",
                           "exp(q[n] * (x[n,d] - 1) - m[n] - q[n] * x[n,d])"}) {
    const Program p =
        parse_op(std::string("op f(x: f64[N,D], t: f64[N,D], q: f64[N]) -> (y) {\n  y[n,d] = x[n,d] * t[n,d] * q[n]\n} backward "
                             "(dy: f64[N,D]) -> (grad_x, grad_t, grad_q) {\n  m[n] = max(d: x[n,d])\n  grad_x[n,d] = ") +
                 grad + "\n  grad_t[n,d] = dy[n,d]\n  grad_q[n] = sum(d: dy[n,d])\n}\n");
    EXPECT_TRUE(equal(p, with_collected_maps(p))) << print(with_collected_maps(p));
  }
}

}  // namespace
}  // namespace xhat::collected_maps_test
