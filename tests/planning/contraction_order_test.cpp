// Sums of products in the order of least work: which partial sums there are, what they compute, and what stays as it is.
#include "fusion/plan/contraction_order.h"

#include <gtest/gtest.h>

#include "fusion/plan/for_sizes.h"
#include "tests/helpers/golden.h"

namespace xhat::contraction_order_test {
namespace {

using namespace xhat::testing;

// Where intermediates cost nothing, small sums have them too, of which the evaluator can tell what they compute.
PlanRequest free_intermediates() {
  PlanRequest request;
  request.machine.pass_ps = request.machine.read_ps_per_byte = request.machine.write_ps_per_byte = 0;
  return request;
}

// The definitions; values are those of the sum as written, also where some of the data are zeros.
std::string ordered_at(const std::string& text, const DimValues& sizes, const PlanRequest& request) {
  const Program p = infer_program(parse_op(text)), made = products_in_order(p, sizes, request);
  verify(made);
  Arrays data = random_data(p, sizes, 4);
  for (int zeros : {0, 1}) {
    EXPECT_EQ(difference(evaluate_on(p, data, sizes), evaluate_on(made, data, sizes), 1e-11), "") << print(made);
    for (auto& [name, array] : data)
      for (size_t i = 0; i < array.reals.size(); i += static_cast<size_t>(zeros) + 2) array.reals[i] = 0;
  }
  const std::string all = print(made);
  const size_t begin = all.find("{\n") + 2;
  return all.substr(begin, all.rfind('}') - begin);
}

const DimValues kSmall = {{"N", 4}, {"C", 6}, {"K", 5}, {"H", 7}, {"W", 8}, {"I", 6}, {"J", 5}, {"R", 3}, {"O", 7}};
std::string small(const std::string& text) { return ordered_at("op f" + text, kSmall, free_intermediates()); }

TEST(ContractionOrder, WhatOneFactorKnowsIsSummedFirst) {
  EXPECT_EQ(small("(x: f64[N,C], w: f64[K,C]) -> (p) { p[k] = sum(n,c: x[n,c]*w[k,c]) }"),
            "  p_part[c] = sum(n: x[n,c])\n"
            "  p[k] = sum(c: p_part[c] * w[k,c])\n");
  // The mean of a convolution: sums of windows, as they lie in what they are multiplied by.
  EXPECT_EQ(small("(x: f64[N,C,H,W], w: f64[K,C,3,3]) -> (p) {\n"
                  "p[n,k] = sum(i in 0..H-2, j in 0..W-2, c, r, s: x[n,c,i+r,j+s]*w[k,c,r,s]) }"),
            "  p_part[n, c, r in 0..3, s in 0..3] = sum(i in 0..H-2, j in 0..W-2: x[n,c,i+r,j+s])\n"
            "  p[n,k] = sum(c,r,s: p_part[n,c,r,s] * w[k,c,r,s])\n");
  EXPECT_EQ(small("(x: f64[N,I], y: f64[N,J]) -> (m) { m = sum(n,i,j: 2*x[n,i]*-y[n,j]/3) }"),
            "  m_part[n] = sum(j: y[n,j])\n"
            "  m = sum(n,i: -(2 * (x[n,i] / 3 * m_part[n])))\n");
}

TEST(ContractionOrder, ChainsAreProductsOfTwo) {
  EXPECT_EQ(small("(x: f64[N,I], a: f64[I,R], b: f64[R,O]) -> (y) { y[n,o] = sum(r,i: x[n,i]*a[i,r]*b[r,o]) }"),
            "  y_part[n,r] = sum(i: x[n,i] * a[i,r])\n"
            "  y[n,o] = sum(r: y_part[n,r] * b[r,o])\n");
  // From the other end, where that is less.
  EXPECT_EQ(ordered_at("op f(x: f64[O,I], a: f64[I,C], b: f64[C,R]) -> (y) { y[o,r] = sum(i,c: x[o,i]*a[i,c]*b[c,r]) }",
                       {{"O", 7}, {"I", 6}, {"C", 20}, {"R", 8}}, free_intermediates()),
            "  y_part[i,r] = sum(c: a[i,c] * b[c,r])\n"
            "  y[o,r] = sum(i: x[o,i] * y_part[i,r])\n");
}

// Nothing is left to be summed at the root, or nothing depends on some of the results' axes before.
TEST(ContractionOrder, RootsWithoutSums) {
  EXPECT_EQ(small("(x: f64[N,I], y: f64[O,J]) -> (z) { z[n,o] = sum(i,j: x[n,i]*y[o,j]) }"),
            "  z_part[n] = sum(i: x[n,i])\n"
            "  z_part_1[o] = sum(j: y[o,j])\n"
            "  z[n,o] = z_part[n] * z_part_1[o]\n");
}

// x of all pairs of features: one partial sum, which stands twice.
TEST(ContractionOrder, EqualPartsAreOne) {
  EXPECT_EQ(small("(x: f64[N,I], v: f64[I,R]) -> (y) { y[n] = sum(i,j,r: v[i,r]*v[j,r]*x[n,i]*x[n,j]) }"),
            "  y_part[n,r] = sum(i: v[i,r] * x[n,i])\n"
            "  y[n] = sum(r: y_part[n,r] * y_part[n,r])\n");
}

// What a condition or another range looks at is summed at the root; there an intermediate has all places.
TEST(ContractionOrder, ConditionsStayAtTheRoot) {
  EXPECT_EQ(small("(x: f64[N,I], a: f64[I,R], b: f64[R,O]) -> (y) { y[n,o] = sum(r,i if r <= o && x[n,0] > 0: x[n,i]*a[i,r]*b[r,o]) }"),
            "  y_part[n,r] = sum(i: x[n,i] * a[i,r])\n"
            "  y[n,o] = sum(r if r <= o && 0 < x[n,0]: y_part[n,r] * b[r,o])\n");
  EXPECT_EQ(small("(x: f64[N,I], a: f64[I,R], b: f64[R,O]) -> (y) {\n"
                  "y[n in 0..N, o in 0..O] = sum(r in max(0,o-2)..min(o+1,R), i: x[n,i]*a[i,r]*b[r,o]) }"),
            "  y_part[n, r in 0..min(O,R)] = sum(i: x[n,i] * a[i,r])\n"
            "  y[n,o] = sum(r in max(0,o-2)..min(o+1,R): y_part[n,r] * b[r,o])\n");
  // A range that begins later.
  EXPECT_EQ(small("(x: f64[N,I], a: f64[I,R], b: f64[R,O]) -> (y) { y[n,o] = sum(r in 1..R, i in 2..I: x[n,i]*a[i,r]*b[r,o]) }"),
            "  y_part[n,r] = sum(i in 2..I: x[n,i] * a[i,r])\n"
            "  y[n,o] = sum(r in 1..R: y_part[n,r] * b[r,o])\n");
  // Its reads are inside only where the condition holds, or the range is.
  const std::string inside = "(x: f64[N,I], a: f64[I,R], b: f64[O,O]) -> (y) { y[n,o] = sum(r in 0..O, i if r < R: x[n,i]*a[i,r]*b[r,o]) }";
  EXPECT_EQ(small(inside).find("_part"), std::string::npos);
}

TEST(ContractionOrder, ManyFactors) {
  const std::string text = small("(a: f64[I,R], b: f64[J,R], c: f64[K,R]) -> (t) {\n"
                                 "t = sum(i,j,k,r,s in 0..R: a[i,r]*b[j,r]*c[k,r]*a[i,s]*b[j,s]*c[k,s]) }");
  EXPECT_NE(text.find("= sum(i: a[i,r] * a[i,s])"), std::string::npos) << text;
  EXPECT_NE(text.find("= sum(j: b[j,r] * b[j,s])"), std::string::npos) << text;
  // More than the search takes: some are joined before.
  const std::string more = small("(a: f64[I,R], b: f64[J,R], c: f64[K,R]) -> (t) {\n"
                                 "t[r] = sum(i,j,k: a[i,r]*b[j,r]*c[k,r]*a[i,0]*b[j,0]*c[k,0]*a[i,1]*b[j,1]*c[k,1]*a[0,r]) }");
  EXPECT_NE(more.find("sum(i:"), std::string::npos) << more;
  EXPECT_NE(more.find("sum(k:"), std::string::npos) << more;
}

TEST(ContractionOrder, OthersStay) {
  for (const char* text :
       {"(x: f64[N,C], w: f64[K,C]) -> (p) { p[n,k] = sum(c: x[n,c]*w[k,c]) }",
        "(x: f64[N,C], w: f64[K,C], g: f64[K]) -> (p) { p[n,k] = sum(c: 2*x[n,c]*w[k,c]/g[k]) }",
        "(x: f64[N,C,H], w: f64[K,C,3]) -> (p) { p[n,k,i in 0..H-2] = sum(c,r: x[n,c,i+r]*w[k,c,r]) }",
        "(x: f64[N,C]) -> (p) { p[n] = sum(c: x[n,c]*x[n,c]) }", "(x: f64[N,C]) -> (p) { p = sum(n,c: x[n,c]) }",
        "(x: f64[N,C], w: f64[K,C]) -> (p) { p[k] = max(n,c: x[n,c]*w[k,c]) }",
        "(x: f64[N,C], w: f64[K,C]) -> (p) { p[k] = sum(n,c: x[n,c]/w[k,c]) }",
        "(x: f64[N,C], w: f64[K,C]) -> (p) { p[k] = sum(n,c: x[n,c]+w[k,c]) }",
        "(x: f64[N,C], w: f64[K,C]) -> (p) { p[k] = sum(n,c if x[n,c] < w[k,c]: x[n,c]*w[k,c]) }",
        "(x: i64[N,C], w: i64[K,C]) -> (p) { p[k] = sum(n,c: x[n,c]*w[k,c]) }",
        "(x: f64[N,C], i: i32[N,C], w: f64[C]) -> (p) { p[k in 0..K] = sum(n,c if i[n,c] == k: x[n,c]*w[c]) }"})
    EXPECT_EQ(small(text).find("_part"), std::string::npos) << text;
  // An intermediate and a sweep cost more than a few terms.
  const std::string few = "op f(x: f32[N,C], w: f32[K,C]) -> (p) { p[k] = sum(n,c: x[n,c]*w[k,c]) }";
  EXPECT_EQ(ordered_at(few, kSmall, {}).find("_part"), std::string::npos);
  EXPECT_NE(ordered_at(few, {{"N", 100}, {"C", 60}, {"K", 50}}, {}).find("_part"), std::string::npos);
  EXPECT_EQ(ordered_at(few, {{"N", 0}, {"C", 60}, {"K", 50}}, free_intermediates()).find("_part"), std::string::npos) << "no terms";
  // Sums that memory decides: reading x takes most of the time, in either order.
  const std::string once = "op f(x: f32[N,C], w: f32[C]) -> (p) { p = sum(n,c: x[n,c]*w[c]) }";
  EXPECT_EQ(ordered_at(once, {{"N", 300}, {"C", 100}}, {}).find("_part"), std::string::npos);
  PlanRequest alone;
  alone.options.policy = FusePolicy::off;
  EXPECT_EQ(ordered_at(few, {{"N", 100}, {"C", 60}, {"K", 50}}, alone).find("_part"), std::string::npos);
}

// Work of the whole plan, of all directions.
int64_t work(const std::string& text, const DimValues& sizes, FusePolicy policy) {
  const Program p = run_passes(parse_op(text), "grad, lift, gather, inline, simplify, stash(cost)");
  int64_t flops = 0;
  for (const Program& direction : {infer_program(p), backward_program(p)}) {
    const PlanRequest request{.options = {.policy = policy}};
    flops += plan_kernels(rewritten_for_sizes(direction, sizes, request), sizes, request).flops;
  }
  return flops;
}

TEST(ContractionOrder, LessWorkInBothDirections) {
  const struct {
    const char* text;
    DimValues sizes;
    int64_t times;  // at least so many times less
  } ops[] = {
      {"op f(x: f32[N,C], w: f32[K,C]) -> (p) { p[k] = sum(n,c: x[n,c]*w[k,c]) }", {{"N", 512}, {"C", 64}, {"K", 64}}, 20},
      {"op f(x: f32[N,I], a: f32[I,R], b: f32[R,I]) -> (y) { y[n,o] = sum(r,i: x[n,i]*a[i,r]*b[r,o]) }", {{"N", 128}, {"I", 128}, {"R", 8}}, 20},
      {"op f(x: f32[N,I], v: f32[I,R]) -> (y) { y[n] = sum(i,j,r: v[i,r]*v[j,r]*x[n,i]*x[n,j]) }", {{"N", 128}, {"I", 64}, {"R", 8}}, 10},
      {"op f(a: f32[I,R], b: f32[R,I,R], c: f32[R,I]) -> (y) { y[i,j,k] = sum(r,s: a[i,r]*b[r,j,s]*c[s,k]) }", {{"I", 32}, {"R", 16}}, 5},
  };
  for (const auto& op : ops)
    EXPECT_LT(op.times * work(op.text, op.sizes, FusePolicy::full), work(op.text, op.sizes, FusePolicy::off)) << op.text;
}

}  // namespace
}  // namespace xhat::contraction_order_test
