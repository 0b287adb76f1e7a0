// Conditions on quotients as ranges: which become one, and that values stay.
#include "fusion/plan/quotient_ranges.h"

#include <gtest/gtest.h>

#include "fusion/plan/plan.h"
#include "tests/helpers/golden.h"

namespace xhat::quotient_ranges_test {
namespace {

using namespace xhat::testing;

// Are there conditions left?
bool conditions_left(const std::string& text, const DimValues& sizes) {
  const Program p = infer_program(parse_op(text)), made = quotients_as_ranges(p, sizes);
  verify(made);
  const Arrays data = random_data(p, sizes, 4);
  EXPECT_EQ(difference(evaluate_on(p, data, sizes), evaluate_on(made, data, sizes), 0), "") << print(made);
  const Node& root = (*made.arena)[made.forward.definitions.back().body];
  return !is_true(*made.arena, reduce_condition(root));
}

TEST(QuotientRanges, OfAdaptivePooling) {
  for (int64_t n : {1, 2, 6, 7, 8, 30, 31}) {
    const DimValues sizes = {{"N", n}};
    EXPECT_FALSE(
        conditions_left("op f(dy: f32[7], x: f32[N]) -> (g) { g[r in 0..N] = sum(i if i*N/7 <= r && r < (i+1)*N/7: dy[i]) }", sizes))
        << n;
    EXPECT_FALSE(conditions_left("op f(dy: f32[7], x: f32[N]) -> (g) { g[r in 0..N] = sum(i if r > i*N/7 && i*2/3 >= r/5: dy[i]) }", sizes))
        << n;
    EXPECT_FALSE(conditions_left("op f(dy: f32[7,7], x: f32[N]) -> (g) { g[r in 0..N] = sum(i, j if j*3/2 < i+r: dy[i,j]) }", sizes)) << n;
  }
}

TEST(QuotientRanges, OfGroups) {
  for (int64_t n : {1, 2, 3, 4}) {
    const DimValues sizes = {{"G", n}, {"K", 3}};
    EXPECT_FALSE(conditions_left("op f(dy: f32[G*K], u: f32[G], v: f32[K]) -> (g) { g[c in 0..4*G] = sum(o if o/K == c/4: dy[o]) }", sizes)) << n;
    EXPECT_FALSE(conditions_left("op f(dy: f32[G*K], u: f32[G], v: f32[K]) -> (g) { g[c in 0..7*G] = sum(o if c/3 == (2*o+1)/5: dy[o]) }", sizes)) << n;
  }
  const Program p = infer_program(parse_op("op f(dy: f32[G*8]) -> (g) { g[c in 0..4*G] = sum(o if o/8 == c/4: dy[o]) }"));
  const Program made = quotients_as_ranges(p, {{"G", 3}});
  EXPECT_NE(print(made).find("sum(o in 0..8: dy[8*(c/4)+o])"), std::string::npos) << print(made);
}

TEST(QuotientRanges, OtherConditionsStay) {
  const DimValues sizes = {{"N", 9}};
  for (const std::string condition : {"(7-i)/2 <= r", "i%3 < r", "i/2 != r", "i*i/2 < r", "i/2 < r || i > 5"})
    EXPECT_TRUE(conditions_left("op f(dy: f32[7], x: f32[N]) -> (g) { g[r in 0..N] = sum(i if " + condition + ": dy[i]) }", sizes))
        << condition;
}

}  // namespace
}  // namespace xhat::quotient_ranges_test
