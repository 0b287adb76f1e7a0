// Ties of extremes: the backward finds those that the forward saw, wherever the values are computed again.
#include <gtest/gtest.h>

#include "ad/reverse/gradient.h"
#include "expr/index/dims.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat {
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

}  // namespace
}  // namespace xhat
