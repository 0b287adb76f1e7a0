// What loops compute before their iterations (expr/imperative/hoist.h). Texts: tests/programs/steps.xh; values: tests/audit/invariants_of_loops.xh.
#include <gtest/gtest.h>

#include "ad/reverse/gradient.h"
#include "expr/core/steps.h"
#include "expr/eval/evaluate.h"
#include "tests/helpers/op_of_text.h"

namespace xhat::hoist_test {
namespace {

using namespace xhat::testing;

Array vector_of(const std::vector<double>& values) {
  Array a = zeros(DType::f64, {static_cast<int64_t>(values.size())});
  a.reals = values;
  return a;
}

// Is one of the blocks made for what stands before a loop?
bool computes_before(const Program& p) {
  bool found = false;
  for_each_block(*p.steps, [&](const Block& b) { found |= b.op->name.ends_with("_before"); });
  return found;
}

constexpr const char* kExtreme = R"(
prog extreme(x: f64[N], h0: f64[N]) -> (h) {
  var h = clone(h0)
  for t in 0..T { h[i] = max(h[i]*0.5, log(x[i])) }
})";

// 1/x is infinite at 0, where the logarithm is no maximum.
TEST(Hoist, WhatNothingReadsHasNoGradient) {
  const Program p = op_of_text(kExtreme, "extreme");
  ASSERT_TRUE(computes_before(p));
  const Arrays g = evaluate(gradient(p), {{"x", vector_of({0, 4, 0})}, {"h0", vector_of({1, 1, 2})}, {"dh", vector_of({1, 1, 1})}},
                            {{"N", 3}, {"T", 2}});
  EXPECT_EQ(g.at("grad_x").reals, (std::vector<double>{0, 0.25, 0}));
  EXPECT_EQ(g.at("grad_h0").reals, (std::vector<double>{0.25, 0, 0.25}));
}

TEST(Hoist, NorHasALoopWithoutIterations) {
  const Program p = op_of_text(kExtreme, "extreme");
  const Arrays g =
      evaluate(gradient(p), {{"x", vector_of({0, -1})}, {"h0", vector_of({1, 2})}, {"dh", vector_of({1, 1})}}, {{"N", 2}, {"T", 0}});
  EXPECT_EQ(g.at("grad_x").reals, (std::vector<double>{0, 0}));
  EXPECT_EQ(g.at("grad_h0").reals, (std::vector<double>{1, 1}));
}

// Row i+1 is not there in the last iteration of the loop around, and the one over j has none then.
TEST(Hoist, RowsThatMightNotBeThereStayInTheLoop) {
  const Program p = op_of_text(R"(
prog triangle(a: f64[N,N], x: f64[N]) -> (y) {
  var y = clone(x)
  for i in 0..N {
    for j in 0..N-1-i {
      q[k] = exp(a[i+1,k])
      y[k] = tanh(y[k])*q[k] + y[(k+1)%N]
    }
  }
})",
                               "triangle");
  EXPECT_FALSE(computes_before(p));
}

// N by M values made of N and of M.
TEST(Hoist, TablesOfPairsAreNotMade) {
  const char* text = R"(
prog pairs(x: f64[N], y: f64[M], h0: f64[M]) -> (h) {
  var h = clone(h0)
  for t in 0..T {
    s[n] = sum(m: exp(x[n]*y[m])*h[m])
    h[m] = 0.9*h[m] + sum(n: s[n])
  }
})";
  EXPECT_FALSE(computes_before(op_of_text(text, "pairs")));
}

}  // namespace
}  // namespace xhat::hoist_test
