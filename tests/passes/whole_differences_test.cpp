// What an extreme is subtracted from stays whole (cse/algebra/whole_differences.h).
#include <gtest/gtest.h>

#include "cse/algebra/whole_differences.h"
#include "tests/helpers/cse_helper.h"

namespace xhat::whole_differences_test {
namespace {

using testing::expect_same_values;

// How often the backward has this text, after the choice of what is kept.
int in_backward(const std::string& op, const std::string& text) {
  const Program p = testing::derived(op), after = plan_stash(p).program;
  verify(after);
  expect_same_values(p, after);
  const std::string all = print(after);
  int count = 0;
  for (size_t at = all.find("} backward"); (at = all.find(text, at)) != std::string::npos; at += text.size()) ++count;
  return count;
}

TEST(WholeDifferences, StandAsTheExtremeHasThem) {
  const std::string of_log = " y[n] = m[n] + log(sum(d: e[n,d]))\n}";
  EXPECT_EQ(in_backward("op f(x: f64[N,D], w: f64[D], u: f64[N]) -> (y) {\n m[n] = max(d: x[n,d] - (w[d] + u[n]))\n"
                        " e[n,d] = exp(x[n,d] - (w[d] + u[n]) - m[n])\n" + of_log,
                        "exp(x[n,d] - (w[d] + u[n]) - m[n])"), 2);
  EXPECT_EQ(in_backward("op f(x: f64[N,D], w: f64[D], u: f64[N]) -> (y) {\n m[n] = max(d: x[n,d]*(w[d]*u[n]))\n"
                        " e[n,d] = exp(x[n,d]*(w[d]*u[n]) - m[n])\n" + of_log,
                        "exp(x[n,d] * (w[d] * u[n]) - m[n])"), 3);
  EXPECT_EQ(in_backward("op f(x: f64[N,D], w: f64[D], u: f64[N]) -> (y) {\n m[n] = min(d: x[n,d] - (w[d] - u[n]))\n"
                        " y[n] = m[n] - log(sum(d: exp(m[n] - (x[n,d] - (w[d] - u[n])))))\n}",
                        "exp(m[n] - (x[n,d] - (w[d] - u[n])))"), 2);
  EXPECT_EQ(in_backward("op f(x: f64[N,D], w: f64[D], u: f64[D]) -> (y) {\n m[n, d in 0..D] = max(k in 0..d+1: x[n,k] + (w[k] - u[k]))\n"
                        " y[n, d in 0..D] = m[n,d] + log(sum(k in 0..d+1: exp(x[n,k] + (w[k] - u[k]) - m[n,d])))\n}",
                        "exp(x[n,k] + (w[k] - u[k]) - m"), 2);
  // An extreme of an extreme and of something else, and one of what has another extreme in it.
  EXPECT_EQ(in_backward("op f(x: f64[N,D], w: f64[D], u: f64[N]) -> (y) {\n m[n] = max(max(d: x[n,d] - (w[d] + u[n])), u[n])\n"
                        " e[n,d] = exp(x[n,d] - (w[d] + u[n]) - m[n])\n y[n] = sum(d: e[n,d]) + exp(u[n] - m[n])\n}",
                        "exp(x[n,d] - (w[d] + u[n]) - max("), 1);
  EXPECT_EQ(in_backward("op f(c: f64[N,M]) -> (y) {\n a[i] = max(j: -c[i,j])\n r[i] = a[i] + log(sum(j: exp(-c[i,j] - a[i])))\n"
                        " b[j] = max(i: -c[i,j] - r[i])\n y[j] = b[j] + log(sum(i: exp(-c[i,j] - r[i] - b[j])))\n}",
                        "a[i] - b[j]"), 0);
}

// What is chosen, where it is known which.
TEST(WholeDifferences, StandAsABranchHasThem) {
  const Program p = parse_op(
      "op f(x: f64[N,D], w: f64[D]) -> (y, m) {\n m[n] = max(d: if d < 2 then x[n,d]*3 - w[d] else x[n,d])\n y[n,d] = x[n,d] - w[d]*m[n]\n"
      "} backward (dy: f64[N,D], dm: f64[N]) -> (grad_x, grad_w) {\n grad_w[d] = w[d]\n grad_x[n,d] = exp(x[n,d]*3 - m[n] - w[d])\n}\n");
  const Program after = with_whole_differences(p, {});
  expect_same_values(p, after);
  EXPECT_EQ(testing::body_of(after, "grad_x"), "exp(x[n,d] * 3 - w[d] - m[n])");
}

TEST(WholeDifferences, OnlyOfWhatTheExtremeIsTakenOf) {
  auto with = [](const std::string& grad) {
    return parse_op("op f(x: f64[N,D], w: f64[D]) -> (y, m) {\n m[n] = max(d: x[n,d] + w[d])\n y[n,d] = x[n,d] - w[d] + (x[n,d] - m[n])\n"
                    "} backward (dy: f64[N,D], dm: f64[N]) -> (grad_x, grad_w) {\n grad_w[d] = w[d]\n grad_x[n,d] = " + grad + "\n}\n");
  };
  for (const char* grad : {"w[d] - dy[n,d] - m[n]", "x[n,d] - m[n] - w[d]", "x[n,d] + (dy[n,d] + m[n]) + w[d]", "x[n,d] + w[d] - m[n] + dy[n,d]",
                           "if w[d] + dy[n,d] - m[n] + x[n,d] < 0 then 1 else 0"})
    EXPECT_TRUE(equal(with(grad), with_whole_differences(with(grad), {}))) << grad;
  const Program p = with("w[d] + dy[n,d] - m[n] + x[n,d]");
  EXPECT_EQ(testing::body_of(with_whole_differences(p, {}), "grad_x"), "x[n,d] + w[d] - m[n] + dy[n,d]");
  // What was written in the forward is left.
  const Program forward = parse_op("op f(x: f64[N,D], w: f64[D]) -> (y) {\n m[n] = max(d: x[n,d] + w[d])\n y[n,d] = x[n,d] - m[n] + w[d]\n}");
  EXPECT_TRUE(equal(forward, with_whole_differences(forward, {*forward.find("y")})));
  EXPECT_FALSE(equal(forward, with_whole_differences(forward, {})));
}

}  // namespace
}  // namespace xhat::whole_differences_test
