// Prefix sums in steps: what they compute, how many steps there are, and what stays as it is.
#include "fusion/plan/prefix_sums.h"

#include <gtest/gtest.h>

#include "tests/helpers/golden.h"

namespace xhat {
namespace {

using namespace xhat::testing;

size_t definitions(const std::string& text, const DimValues& sizes) {
  const Program p = infer_program(parse_op(text)), made = prefix_sums_by_steps(p, sizes, {});
  verify(made);
  const Arrays data = random_data(p, sizes, 4);
  EXPECT_EQ(difference(evaluate_on(p, data, sizes), evaluate_on(made, data, sizes), 1e-9), "") << print(made);
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
}

TEST(PrefixSums, OtherReductionsStay) {
  const DimValues sizes = {{"B", 3}, {"N", 150}};
  for (const std::string body : {"sum(k in 0..i+1: x[k]*x[i])", "sum(k in 0..2*i/2+1: x[k])", "prod(k in 0..i+1: x[k])",
                                 "sum(k in i/2..i+1: x[k])", "sum(k in 0..i+1 if x[k] > 0: x[k])", "sum(k: x[k])"})
    EXPECT_EQ(definitions("op f(x: f32[N]) -> (y) { y[i in 0..N] = " + body + " }", sizes), 1u) << body;
  EXPECT_EQ(definitions("op f(x: f32[N]) -> (y) { y[i in 0..N] = sum(k in 0..i+1: x[k]) }", {{"N", 40}}), 1u) << "short";
}

}  // namespace
}  // namespace xhat
