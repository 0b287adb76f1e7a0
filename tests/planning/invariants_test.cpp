// What is computed once for many points: what becomes a table, and that values stay.
#include "fusion/plan/invariants.h"

#include <gtest/gtest.h>

#include "tests/helpers/golden.h"

namespace xhat::invariants_test {
namespace {

using namespace xhat::testing;

size_t tables(const std::string& body, const DimValues& sizes = {{"N", 2000}, {"K", 12}}) {
  const Program p = infer_program(parse_op("op f(x: f32[N,K], s: f32[K], m: f32[N]) -> (y) { " + body + " }"));
  const Program made = invariants_apart(p, sizes, {});
  verify(made);
  const Arrays data = random_data(p, sizes, 4);
  EXPECT_EQ(difference(evaluate_on(p, data, sizes), evaluate_on(made, data, sizes), 0), "") << print(made);
  return made.forward.definitions.size() - p.forward.definitions.size();
}

TEST(Invariants, AreComputedOnce) {
  EXPECT_EQ(tables("y[n,k] = x[n,k]*cos(0.5*f32(k))"), 1u);
  EXPECT_EQ(tables("y[n,k] = x[n,k]*exp(-s[k])+sin(f32(k))"), 2u);
  EXPECT_EQ(tables("y[n] = sum(k: ((x[n,k]-m[n])*exp(-s[k]))^2)"), 1u);
  EXPECT_EQ(tables("y[n] = max(k if k <= n: x[n,k]*exp(s[k]))"), 1u) << "the condition stays";
}

TEST(Invariants, OthersStay) {
  EXPECT_EQ(tables("y[n,k] = x[n,k]*exp(m[n])"), 0u) << "once per row anyhow";
  EXPECT_EQ(tables("y[k] = sum(n: x[n,k]*exp(m[n]))"), 0u) << "once per row anyhow, where columns are summed";
  EXPECT_EQ(tables("y[n,k] = x[n,k]*(s[k]+1)"), 0u) << "cheap";
  EXPECT_EQ(tables("y[n,k] = x[n,k]*exp(s[k])", {{"N", 3}, {"K", 12}}), 0u) << "few uses";
  EXPECT_EQ(tables("y[n,k] = x[n,k]*exp(s[k])", {{"N", 20}, {"K", 12}}), 0u) << "not worth a sweep";
  EXPECT_EQ(tables("y[n,k in 0..K+1] = if k < K then exp(s[k])+m[n] else 0"), 0u) << "not there at all points";
  EXPECT_EQ(tables("y[n in 0..N] = sum(k in 0..min(n+1,K): x[n,k]*exp(s[k]))"), 0u) << "a range that depends on another axis";
}

}  // namespace
}  // namespace xhat::invariants_test
