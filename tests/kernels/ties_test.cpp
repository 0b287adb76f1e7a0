// Ties of extremes: the backward finds those that the forward saw, wherever the values are computed again.
#include <gtest/gtest.h>

#include <array>

#include "ad/reverse/gradient.h"
#include "expr/index/dims.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::ties_test {
namespace {

using namespace xhat::testing;
using Policy = StashOptions::Policy;

void expect_agreement(const std::string& text, const DimValues& dims, std::initializer_list<unsigned> seeds, double tolerance) {
  const Program op = parse_op(text), derived = gradient(op);
  for (FusePolicy fuse : {FusePolicy::full, FusePolicy::relay, FusePolicy::off})
    for (Policy policy : {Policy::cost, Policy::none}) {
      SCOPED_TRACE(text + "\nfusion " + std::to_string(static_cast<int>(fuse)) + ", stash " + std::to_string(static_cast<int>(policy)));
      CompileOptions options;
      options.fusion.policy = fuse;
      options.stash.policy = policy;
      for (const std::string& name : free_dims(op)) options.dims[name] = dims.at(name);
      const CompiledOp compiled = compile(op, options);
      for (unsigned seed : seeds) {
        const Arrays data = random_data(derived, dims, seed);
        EXPECT_EQ(difference(evaluate_on(derived, data, dims), run_both(compiled, data, dims), tolerance), "") << "seed " << seed;
      }
    }
}

// The quotient has three axes where it is written and two where the gradient compares it.
TEST(Ties, OfQuotientsReadAtOtherPlaces) {
  expect_agreement(R"(op f(z: f32[M,M], u: f32[M,N]) -> (y) {
  t[i in 0..M, j in 0..5, k in 0..N] = (z[j,i else 0]*z[j,i else 0] + z[j,i else 0]) / (u[i,k]^2 + 1) + 1
  y[i in 0..M] = max(r in 0..5, q in 0..5: t[i,i+r-1,2*r+1 else -0.5]) + 1
})",
                   {{"N", 7}, {"M", 17}}, {1, 2, 7}, 1e-4);
}

TEST(Ties, OfProductsAndQuotientsThatAreStoredToo) {
  expect_agreement("op f(x: f32[N,M], w: f32[M], b: f32[N]) -> (y, t) { t[i,j] = x[i,j]*w[j] + x[i,j]/b[i]; y[i] = max(j: t[i,j]) }",
                   {{"N", 5}, {"M", 37}}, {1, 2, 3}, 1e-4);
}

// An extreme that the caller has, over sums that policy none adds up again.
TEST(Ties, OfSumsThatAreRecomputed) {
  expect_agreement("op f(x: f32[N,K], w: f32[K,M]) -> (m) { s[i,j] = sum(k: x[i,k]*w[k,j]); m[i] = max(j: s[i,j]) }",
                   {{"N", 9}, {"M", 20}, {"K", 300}}, {1, 2}, 1e-4);
}

// What is compared with the least of three sums in bf16 is these sums, although they are asked for by p, of which there are more.
TEST(Ties, OfRoundedSumsThatAreAskedForUnderACondition) {
  expect_agreement(R"(op half(a: bf16[P], s: bf16) -> (c) { c[p] = a[p] / (1 + sum(q: a[q]^2)) - s }
op f(x: bf16[M], v: bf16[M]) -> (y) {
  u[i] = v[i] * x[i]
  t = half(2 * u, 0.5)
  y[p in 0..N] = min(r in 0..3: sum(q in 0..1: 1 + t[r]))
})",
                   {{"M", 4}, {"N", 16}}, {1, 2, 3}, 0.13);
}

// The rounding of a product that lies at its own maximum is not left over by an fma: exp of it would be infinite.
TEST(Ties, WhatAnExtremeIsSubtractedFromIsRounded) {
  for (const char* body : {"y[i,j] = let m = max(k: x[i,k]*c) in exp(x[i,j]*c - m) / sum(k: exp(x[i,k]*c - m))",
                           "z[i,j] = x[i,j]*c; m[i] = max(k: z[i,k]); y[i,j] = exp(z[i,j] - m[i]) / sum(k: exp(z[i,k] - m[i]))",
                           "m[i] = max(k: x[i,k]*c); s[i] = if m[i] > -inf then m[i] else 0; y[i,j] = exp(x[i,j]*c - s[i])",
                           "m[i] = min(k: c*x[i,k]); y[i,j] = exp(m[i] - x[i,j]*c)",
                           "y[i,j] = let a = x[i,j]*c in let b = x[i,(j+1)%M]*c in exp(a - max(a, b)) + exp(b - max(a, b))"}) {
    const Program op = parse_op(std::string("op f(x: f32[N,M], c: f32) -> (y) { ") + body + " }"), derived = gradient(op);
    SCOPED_TRACE(body);
    const DimValues dims = {{"N", 5}, {"M", 19}};
    Arrays data = random_data(derived, dims, 3);
    for (double& v : data.at("x").reals) v = static_cast<float>(v * 1e15);
    const CompiledOp compiled = compile(op);
    EXPECT_EQ(difference(evaluate_on(derived, data, dims), run_both(compiled, data, dims), 1e-4), "");
  }
}

// Of edges that are parallel no fma leaves what rounding took from a product: divided by its length it would be a normal.
TEST(Ties, ProductsThatAreEqualAreNothingApart) {
  for (const char* body : {"y[i,c in 0..3] = a[i,(c+1)%3]*b[i,(c+2)%3] - a[i,(c+2)%3]*b[i,(c+1)%3]",
                           "y[i,c in 0..3] = a[i,(c+1)%3]*b[i,(c+2)%3] + a[i,(c+2)%3]*(-b[i,(c+1)%3])",
                           "y[i,c in 0..3] = -(a[i,(c+1)%3]*b[i,(c+2)%3]) + a[i,(c+2)%3]*b[i,(c+1)%3]",
                           "n[i,c in 0..3] = a[i,(c+1)%3]*b[i,(c+2)%3] - b[i,(c+1)%3]*a[i,(c+2)%3]; l[i] = sqrt(sum(c: n[i,c]^2)); "
                           "y[i,c] = if l[i] > 0 then n[i,c]/l[i] else 0",
                           "u[i,c] = a[i,c] - a[0,c]; v[i,c] = b[i,c] - b[0,c]; "
                           "n[i,c in 0..3] = u[i,(c+1)%3]*v[i,(c+2)%3] - u[i,(c+2)%3]*v[i,(c+1)%3]; y[i,c] = n[i,c]/max(sqrt(sum(d: n[i,d]^2)), 1e-20)",
                           "y[i,c in 0..3] = tanh(1e9*(a[i,c]*b[i,(c+1)%3] - a[i,(c+1)%3]*b[i,c]))"}) {
    const Program op = parse_op(std::string("op f(a: f32[N,3], b: f32[N,3]) -> (y) { ") + body + " }");
    Arrays data = random_data(op, {{"N", 50}}, 1);
    data.at("b") = data.at("a");
    const Arrays got = run_infer(compile(op), data, {{"N", 50}});
    for (double v : got.at("y").reals) EXPECT_EQ(v, 0) << body;
  }
}

TEST(Ties, TheFractionOfAProductIsNotNegative) {
  const Program op = parse_op("op f(x: f32[N], w: f32) -> (y, z) { y[i] = x[i]*w - floor(x[i]*w); z[i] = x[i]*w - f32(i32(x[i]*w)) }");
  Arrays data = random_data(op, {{"N", 1000}}, 1);
  auto& x = data.at("x").reals;
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<double>(i) / 49);
  data.at("w").reals = {49};  // products that round to whole numbers
  const Arrays got = run_infer(compile(op), data, {{"N", 1000}});
  for (const char* name : {"y", "z"})
    for (double v : got.at(name).reals) EXPECT_TRUE(v >= 0 && v < 1) << name << ": " << v;
}

// x read between its elements, at places that are its elements up to rounding: the weights and the places of the gradient are of one cell.
TEST(Ties, WeightsOfAnInterpolationBelongToItsPlaces) {
  const std::vector<std::array<std::string, 3>> ways = {{"floor(p[i])", "1 - t[i]", "t[i]"},
                                                        {"f32(i64(floor(p[i])))", "1 - t[i]^3", "t[i]^3"},
                                                        {"(p[i] - p[i] % 1)", "1 - t[i]^3", "t[i]^3"},
                                                        {"(ceil(p[i] + 0.5) - 1)", "cos(t[i])^2", "sin(t[i])^2"},
                                                        {"round(p[i] - 0.25)", "1 - t[i]^2", "t[i]^2"}};
  for (const auto& [cell, near, far] : ways) {
    const Program op =
        parse_op("op f(x: f32[N], g: f32[M]) -> (y) { p[i] = ((g[i] + 1) * 49 - 1) / 2; t[i] = p[i] - " + cell + "; y[i] = (" + near +
                 ") * x[i64(" + cell + ") else 0] + (" + far + ") * x[i64(" + cell + ") + 1 else 0] }");
    const DimValues dims = {{"N", 49}, {"M", 49}};
    Arrays data = random_data(gradient(op), dims, 1);
    auto& g = data.at("g").reals;
    for (size_t i = 0; i < g.size(); ++i) g[i] = static_cast<float>(static_cast<double>(2 * i + 1) / 49 - 1);
    for (double& v : data.at("dy").reals) v = 1;
    const Arrays got = run_both(compile(op), data, dims);
    for (size_t i = 1; i + 1 < g.size(); ++i) EXPECT_NEAR(got.at("grad_x").reals[i], 1, 0.3) << cell << " at " << i;
  }
}

}  // namespace
}  // namespace xhat::ties_test
