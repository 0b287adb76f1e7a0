// Sums over a few places that choices tell apart (cse/normalize/few_terms.h).
#include <gtest/gtest.h>

#include "cse/normalize/few_terms.h"

#include "ad/gather/gather.h"
#include "ad/reverse/gradient.h"
#include "cse/normalize/auto_inliner.h"
#include "cse/normalize/lift_reductions.h"
#include "cse/normalize/only_places.h"
#include "tests/helpers/cse_helper.h"

namespace xhat::few_terms_test {
namespace {

using testing::backward_reductions;
using testing::body_of;
using testing::expect_same_values;

Program written_out(const std::string& text) {
  Program p = parse_op(text), after = with_few_terms(p);
  verify(after);
  expect_same_values(p, after);
  return after;
}

TEST(FewTerms, OfChoicesByThePlace) {
  EXPECT_EQ(body_of(written_out("op f(x: f64[N,2], a: f64[N]) -> (y) { y[n] = sum(c: if c == 0 then x[n,c]*a[n] else -x[n,c]) }"), "y"),
            "x[n,0] * a[n] + -x[n,1]");
  EXPECT_EQ(body_of(written_out("op f(x: f64[N,3]) -> (y) { y[n] = sum(c if c != 1: x[n,c]) }"), "y"), "x[n,0] + x[n,2]");
  EXPECT_EQ(body_of(written_out("op f(x: f64[N,3], a: f64[3]) -> (y) { y = sum(n,c if n < 2 && c < 2: a[c]*x[n,c]) }"), "y"),
            "sum(n if n < 2: a[0] * x[n,0] + a[1] * x[n,1])");
  // An axis at a time.
  const Program one_axis =
      written_out("op f(x: f64[3,3]) -> (y) { y = sum(a,c: if a == 1 && c == 0 || a == 0 && c == 2 then x[a,c] else 0) }");
  EXPECT_EQ(body_of(written_out(print(one_axis)), "y"), "0 + x[1,0] + (x[0,2] + 0)");
}

TEST(FewTerms, StayASumOtherwise) {
  for (const std::string text :
       {"op f(x: f64[N,3]) -> (y) { y[n] = sum(c: x[n,c]^2) }",                                         // nothing is chosen
        "op f(x: f64[N,9]) -> (y) { y[n] = sum(c: if c == 0 then x[n,c] else x[n,c]^2) }",              // many places
        "op f(x: f64[N,K]) -> (y) { y[n] = sum(k: if k == 0 then x[n,k] else x[n,k]^2) }",              // nobody knows how many
        "op f(x: f64[N,3]) -> (y) { y[n] = sum(c if c == 0 || c <= n: x[n,c]) }",                       // each has its own condition
        "op f(x: f64[N,3]) -> (y) { y[n] = sum(c in 0..3, k in 0..c: if c == 0 then 1 else x[n,k]) }",  // a range asks for it
        "op f(x: bf16[N,2]) -> (y) { y[n] = sum(c: if c == 0 then x[n,c] else -x[n,c]) }"})             // rounded once, at the end
    EXPECT_TRUE(equal(parse_op(text), with_few_terms(parse_op(text)))) << text;
}

TEST(FewTerms, OnePointOfAnAxis) {
  EXPECT_EQ(body_of(written_out("op f(x: f64[N,4]) -> (y) { y[n] = sum(c in 2..3: x[n,c]^2) }"), "y"), "x[n,2]^2");
  EXPECT_EQ(body_of(written_out("op f(x: f64[N,4]) -> (y) { y[n] = sum(c in 2..3 if x[n,0] < f64(c): x[n,c]) }"), "y"),
            "if x[n,0] < 2 then x[n,2] else 0");
  EXPECT_EQ(body_of(written_out("op f(x: f64[N,4], w: f64[K]) -> (y) { y[n,c in 0..1] = sum(k: x[n,c+3]*w[k]) }"), "y"),
            "sum(k: x[n,3] * w[k])");
  EXPECT_EQ(body_of(written_out("op f(x: f64[1,4]) -> (y) { y[i,k] = x[i,k] + x[i,3] }"), "y"), "x[i,k] + x[i,3]");
}

TEST(FewTerms, ComputedAtTheOnlyPlaceThatIsRead) {
  auto narrowed = [](const std::string& text) {
    Program p = parse_op(text), after = at_only_places(p);
    verify(after);
    expect_same_values(p, after);
    return print(after);
  };
  const std::string sums = "s[n,c] = sum(k: x[n,k,c]*w[k]); ";
  const std::string head = "op f(x: f64[N,K,3], w: f64[K]) -> ";
  const std::string once = narrowed(head + "(y) { " + sums + "y[n] = 2*s[n,2] + s[n,2]^2 }");
  EXPECT_NE(once.find("s[n, c in 0..1] = sum(k: x[n,k,2] * w[k])"), std::string::npos) << once;
  EXPECT_NE(once.find("2 * s[n,0]"), std::string::npos) << once;
  for (const std::string& text :
       {head + "(y) { " + sums + "y[n] = s[n,2] + s[n,0] }",          // two places
        head + "(y) { " + sums + "y[n] = sum(c: s[n,c]) + s[n,0] }",  // an axis
        head + "(s, y) { " + sums + "y[n] = s[n,2] }",                // somebody else may read it
        head + "(y) { " + sums + "y[n] = s[n,2 else 0] }",
        // which there may not be
        std::string("op f(x: f64[N,K]) -> (y) { s[n in 0..N] = sum(k: x[N-1-n,k]); y[k] = if 1 < N then s[1]*x[0,k] else 0 }")})
    EXPECT_TRUE(equal(parse_op(text), at_only_places(parse_op(text)))) << text;
}

// What a caller gives is as it is, inputs and cotangents alike.
TEST(FewTerms, CotangentsAreReadWhereTheyAre) {
  const Program p = gradient(parse_op("op f(x: f64[2]) -> (y) { y[i in 0..1,j in 0..2] = if j == 1 then x[0]*x[1] else 0 }"));
  const Program reads = inline_injective(with_few_terms(gather(lift_reductions(p, true))));
  EXPECT_NE(print(reads).find("dy[0,1]"), std::string::npos) << print(reads);
  EXPECT_TRUE(equal(reads, at_only_places(reads)));
}

// Neighbours kept in a tensor of their own: choices come into the gradient's sum when its terms are brought together.
TEST(FewTerms, OfWhatInliningBringsTogether) {
  const Program op = parse_op("op f(x: f64[N]) -> (y) {\n t[c in 0..3,n in 0..N] = x[(n+c-1)%N]\n y[n] = (t[2,n] - t[0,n])*t[1,n]\n}");
  const Program once = inline_injective(with_few_terms(gather(lift_reductions(gradient(op), true))));
  EXPECT_EQ(backward_reductions(once), 1) << print(once);
  EXPECT_EQ(backward_reductions(inline_injective(with_few_terms(once))), 0);
}

// What is stacked by an `if` has the gradient of what has names.
TEST(FewTerms, OfGradients) {
  const std::string head = "op f(a: f64[N,2,D], b: f64[N,2,D]) -> (y) { y[n,c in 0..2,d] = if c == 0 then ";
  const Program op = parse_op(head + "a[n,0,d]*b[n,0,d] - a[n,1,d]*b[n,1,d] else a[n,0,d]*b[n,1,d] + a[n,1,d]*b[n,0,d] }");
  const Program p = inline_injective(with_few_terms(gather(lift_reductions(gradient(op), true))));
  EXPECT_EQ(backward_reductions(p), 0) << print(p);
}

}  // namespace
}  // namespace xhat::few_terms_test
