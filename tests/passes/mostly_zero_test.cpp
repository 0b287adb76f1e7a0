// Which values are 0 nearly everywhere, and that a backward knows it of what the forward has kept for it.
#include "expr/core/mostly_zero.h"

#include <gtest/gtest.h>

#include "ad/gather/gather.h"
#include "ad/reverse/gradient.h"
#include "cse/normalize/auto_inliner.h"
#include "cse/stash/stash_planner.h"
#include "fusion/plan/plan.h"
#include "tests/helpers/golden.h"

namespace xhat::mostly_zero_test {
namespace {

using namespace xhat::testing;

// The definitions of which that holds, one after another.
std::string found(const std::string& body) {
  Program p = parse_op("op f(x: f32[N,K], w: f32[K], q: i32[N,K]) -> (t) {\n m[n] = max(j in 0..K: x[n,j])\n" + body + "\n}");
  mark_mostly_zero(p);
  std::string names;
  for (const Definition& d : p.forward.definitions)
    if (p.tensors[d.target()].mostly_zero) names += p.tensors[d.target()].name + " ";
  return names;
}

TEST(MostlyZero, WhereAValueEqualsAnExtreme) {
  EXPECT_EQ(found("t[n,k] = x[n,k] == m[n]"), "t ");
  EXPECT_EQ(found("t[n,k] = if x[n,k] == m[n] then w[k] else 0"), "t ");
  EXPECT_EQ(found("t[n,k] = w[k]*(if x[n,k] == m[n] && 0 < w[k] then 2 else 0)/m[n]"), "t ");
  EXPECT_EQ(found("a[n,k] = if x[n,k] == m[n] then 1 else 0\n b[n,k] = if x[n,k] == w[k] then w[k] else 0\n t[n,k] = a[n,k] - 2*b[n,k]"),
            "a b t ");
}

TEST(MostlyZero, OthersMayBeAnything) {
  EXPECT_EQ(found("t[n,k] = x[n,k] == 0"), "");  // what relu has cut off
  EXPECT_EQ(found("t[n,k] = x[n,k] < m[n]"), "");
  EXPECT_EQ(found("t[n,k] = q[n,k] == q[n,0]"), "");
  EXPECT_EQ(found("t[n,k] = if x[n,k] == m[n] then w[k] else 1"), "");
  EXPECT_EQ(found("t[n,k] = if x[n,k] == m[n] || 0 < w[k] then w[k] else 0"), "");
  EXPECT_EQ(found("t[n,k] = w[k] + (if x[n,k] == m[n] then w[k] else 0)"), "");
  EXPECT_EQ(found("t[n] = sum(k: if x[n,k] == m[n] then w[k] else 0)"), "");
}

TEST(MostlyZero, ABackwardKnowsItOfWhatWasKept) {
  const Program p = parse_op("op f(x: f32[N,I], w: f32[O,I]) -> (y) { y[o] = max(n: sum(i: x[n,i]*w[o,i])) }");
  const Program backward = backward_program(plan_stash(inline_injective(gather(gradient(p)))).program);
  int known = 0;
  for (TensorId t : backward.inputs) known += backward.tensors[t].mostly_zero ? 1 : 0;
  EXPECT_EQ(known, 1) << print(backward);
}

}  // namespace
}  // namespace xhat::mostly_zero_test
