// Flattened positions taken apart (cse/normalize/flattened_axes.h), and divisions in indices done (simple_indices.h).
#include <gtest/gtest.h>

#include "cse/normalize/flattened_axes.h"
#include "cse/normalize/simple_indices.h"
#include "tests/helpers/cse_helper.h"

namespace xhat::flattened_axes_test {
namespace {

using testing::body_of;
using testing::expect_same_values;

std::string apart(const std::string& text, const std::string& tensor = "y") {
  Program p = parse_op(text), after = without_flattened_axes(p);
  verify(after);
  expect_same_values(p, after);
  return body_of(after, tensor);
}

TEST(FlattenedAxes, BecomeTheAxesThatTheyAreMadeOf) {
  EXPECT_EQ(apart("op f(x: f64[H,W]) -> (y) { y = sum(p in 0..H*W: x[p/W,p%W]) }"), "sum(p_1,p_2: x[p_1,p_2])");
  EXPECT_EQ(apart("op f(x: f64[N,C,H,W]) -> (y) {\n z[c, p in 0..N*H*W] = x[p/(H*W),c,p%(H*W)/W,p%W]\n m[c] = max(p: z[c,p])\n"
                  " y[c] = sum(p: (z[c,p] - m[c])^2)\n}"),
            "sum(p_1,p_3,p_4: (x[p_1,c,p_3,p_4] - m[c])^2)");
  EXPECT_EQ(apart("op f(x: f64[N,8]) -> (y) { y[n] = prod(p in 0..8: x[n,p]) }"), "prod(p: x[n,p])");
  EXPECT_EQ(apart("op f(x: f64[4,S]) -> (y) { y = sum(p in 0..4*S if p/S > 1: x[p/S,p%S]) }"), "sum(p_1, p_2 if 1 < p_1: x[p_1,p_2])");
}

TEST(FlattenedAxes, ThatMoveWindowsAreTakenApartInAnyCase) {
  EXPECT_EQ(apart("op f(x: f64[3*H,W], g: f64[H*W]) -> (y) { y[r in 0..3] = sum(p in 0..H*W: x[3*(p/W)+r,p%W]*g[p]) }"),
            "sum(p_1 in 0..H, p_2: x[3*p_1+r,p_2] * g[p_1*W+p_2])");
}

TEST(FlattenedAxes, StayWhereThePositionItselfCounts) {
  for (const char* text : {"op f(x: f64[H,W], s: f64[H*W]) -> (y) { y = sum(p in 0..H*W: x[p/W,p%W]*s[p]) }",
                           "op f(x: f64[H,W]) -> (y) { y = sum(p in 0..H*W if p > 3: x[p/W,p%W]) }",
                           "op f(x: f64[H,W]) -> (y) { y = sum(p in 0..H*W: sum(q in 0..p: x[p/W,p%W])) }",
                           "op f(x: f64[H,W]) -> (y) { y[i] = f64(argmax(p in 0..H*W: x[p/W,p%W]*x[i,0])) }"}) {
    Program p = parse_op(text);
    EXPECT_TRUE(equal(p, without_flattened_axes(p))) << text;
  }
}

std::string simple(const std::string& text) {
  Program p = parse_op(text), after = with_simple_indices(p);
  verify(after);
  expect_same_values(p, after);
  return body_of(after, "y");
}

TEST(SimpleIndices, ReadTheSamePlaces) {
  EXPECT_EQ(simple("op f(x: f64[H,W]) -> (y) { y[h in 0..H, w in 0..W] = 2*x[(h*W+w)/W,(h*W+w)%W] }"), "2 * x[h,w]");
  EXPECT_EQ(simple("op f(v: f64[G], s: f64[4*G]) -> (y) { y[g in 0..G] = sum(c in 0..4: v[(4*g+c)/4]*s[4*((4*g+c)/4)+c%4]) }"),
            "sum(c in 0..4: v[g] * s[4*g+c])");
  EXPECT_EQ(simple("op f(x: f64[N]) -> (y) { y[i in 0..N] = x[i/2] }"), "x[i/2]");
  EXPECT_EQ(simple("op f(x: f64[H,W]) -> (y) { y[h in 0..H, w in 0..W] = x[(h*W+w)/W,(h*W+w+1)%W] }"), "x[h,(w+1)%W]");
  EXPECT_EQ(simple("op f(x: f64[W]) -> (y) { y[w in 0..W] = x[((w+W-1)%W+W-1)%W] }"), "x[(w-2)%W]");
  // Axes of sums within sums, but not where one name has two ranges.
  EXPECT_EQ(simple("op f(x: f64[8]) -> (y) { y = sum(i in 0..2: sum(j in 0..4: x[4*((4*i+j)/4)+j])^2) }"),
            "sum(i in 0..2: sum(j in 0..4: x[4*i+j])^2)");
  EXPECT_EQ(simple("op f(x: f64[4]) -> (y) { y = sum(j in 0..4: x[j/4]) + sum(j in 0..8: x[j/4]) }"),
            "sum(j in 0..4: x[j/4]) + sum(j in 0..8: x[j/4])");
}

TEST(SimpleIndices, OfNestedDivisionsAlone) {
  auto solvable = [](const std::string& text) {
    Program p = parse_op(text), after = without_nested_divisions(p);
    verify(after);
    expect_same_values(p, after);
    return body_of(after, "y");
  };
  EXPECT_EQ(solvable("op f(x: f64[W]) -> (y) { y[w in 0..W] = x[w/2] + sum(v in 0..W if ((v-1)%W-1)%W == w: x[v]) }"),
            "x[w/2] + sum(v if (v - 2) % W == w: x[v])");
  EXPECT_EQ(solvable("op f(x: f64[2*W]) -> (y) { y[w in 0..2*W] = sum(r in 0..3 if (w + 4 - 2*r) % 2 == 0: x[(w+4-2*r)/2]) }"),
            "sum(r in 0..3 if (w + 4 - 2 * r) % 2 == 0: x[(w+4-2*r)/2])");
}

TEST(SimpleIndices, ReadsThatTheRangesKeepInsideHaveNoElse) {
  EXPECT_EQ(simple("op f(x: f64[N,3]) -> (y) { y[n] = x[n,2 else 5] }"), "x[n,2]");
  EXPECT_EQ(simple("op f(x: f64[N,4]) -> (y) { y[n in 0..N,c in 0..3] = x[n,c+1 else 5] }"), "x[n,c+1]");
  EXPECT_EQ(simple("op f(x: f64[N,4]) -> (y) { y[n in 0..N,c in 0..4] = x[n,c+1 else 5] }"), "x[n,c+1 else 5]");
  EXPECT_EQ(simple("op f(x: f64[N,K]) -> (y) { y[n] = x[n,2 else 5] }"), "x[n,2 else 5]");
}

}  // namespace
}  // namespace xhat::flattened_axes_test
