// Results with as many places as make whole phases: which, and that values stay.
#include "fusion/plan/whole_phases.h"

#include <gtest/gtest.h>

#include "fusion/plan/quotient_ranges.h"
#include "tests/helpers/golden.h"

namespace xhat::whole_phases_test {
namespace {

using namespace xhat::testing;

// The text of what is made, without its first and last line.
std::string made_of(const std::string& text, const DimValues& sizes) {
  const Program p = infer_program(parse_op(text)), numbers = with_numbers_as_divisors(p, sizes),
                made = phases_made_whole(numbers, sizes, {});
  const Arrays data = random_data(p, sizes, 4);
  EXPECT_EQ(difference(evaluate_on(p, data, sizes), evaluate_on(made, data, sizes), 0), "") << print(made);
  if (equal(numbers, made)) return "";
  const std::string printed = print(made);
  const size_t begin = printed.find("\n  ") + 3;
  return printed.substr(begin, printed.rfind("\n}") - begin);
}

TEST(WholePhases, OfAResult) {
  EXPECT_EQ(
      made_of("op f(x: f32[C,H], w: f32[C,5]) -> (y) { y[t in 0..23] = sum(c, r if (t+1-2*r)%2 == 0: x[c,(t+1-2*r)/2 else 0]*w[c,r]) }",
              {{"C", 4}, {"H", 9}}),
      "y_whole[t in 0..24] = sum(c, r if (t + 1 - 2 * r) % 2 == 0: x[c,(t+1-2*r)/2 else 0] * w[c,r])\n"
      "  y[t in 0..23] = y_whole[t]");
}

TEST(WholePhases, OfATemporaryThereIsNoCopy) {
  const std::string made = made_of(
      "op f(x: f32[C,H], w: f32[C,5]) -> (z) {\n"
      "  y[t in 0..23] = sum(c, r if (t+1-2*r)%2 == 0: x[c,(t+1-2*r)/2 else 0]*w[c,r])\n"
      "  z = max(t: y[t])\n}",
      {{"C", 4}, {"H", 9}});
  EXPECT_EQ(made.find("  y["), std::string::npos) << made;
  EXPECT_NE(made.find("z = max(t in 0..23: y_whole[t])"), std::string::npos) << made;
}

TEST(WholePhases, ReadsBehindTheEndGiveNothing) {
  EXPECT_EQ(made_of("op f(x: f32[C,H], w: f32[C,2], b: f32[7]) -> (y) { y[t in 0..7] = sum(c: x[c,t/2 else 0]*w[c,t%2]*b[t]) }",
                    {{"C", 20}, {"H", 4}}),
            "y_whole[t in 0..8] = sum(c: x[c,t/2 else 0] * w[c,t%2] * b[t else 0])\n"
            "  y[t in 0..7] = y_whole[t]");
}

TEST(WholePhases, InSeveralDimensions) {
  const std::string made = made_of(
      "op f(x: f32[C,H,H], w: f32[C,3,3]) -> (y) {\n"
      "  y[i in 0..9, j in 0..11] = sum(c, r, s if (i+1-r)%2 == 0 && (j+1-s)%3 == 0: x[c,(i+1-r)/2,(j+1-s)/3 else 0]*w[c,r,s])\n}",
      {{"C", 3}, {"H", 5}});
  EXPECT_NE(made.find("y_whole[i in 0..10, j in 0..12]"), std::string::npos) << made;
}

TEST(WholePhases, RowsInAnotherOrderStay) {
  for (const char* body : {"y[k,t in 0..7] = sum(c: w[k,c]*x[c,t/2+t%2*4])", "y[k,t in 0..7] = sum(c: x[c,t%2*4+t/2]*w[k,c])",
                           "y[k,t in 0..8] = sum(c: w[k,c]*x[c,(t+k)/3+(t+k)%3*2])", "y[k,t in 0..7] = sum(c in 0..k: w[k,c]*exp(x[c,(t+2*k)%3]))",
                           "y[k,t in 0..7] = max(c: w[k,c]+x[c,t%2])"})
    EXPECT_EQ(made_of(std::string("op f(x: f32[20,9], w: f32[5,20]) -> (y) { ") + body + " }", {}), "") << body;
  for (const char* body : {"y[t in 0..7] = sum(c: x[c,t/2]*w[t%2,c])", "y[t in 0..7] = sum(k, c: w[k,c]*x[c,(t+k)/2])",
                           "y[k,t in 0..7] = sum(c: w[k,c]*x[c,t/2]*f32(t%2))", "y[k,t in 0..7] = sum(c if t%2 == 0: w[k,c]*x[c,1])"})
    EXPECT_NE(made_of(std::string("op f(x: f32[20,9], w: f32[5,20]) -> (y) { ") + body + " }", {}), "") << body;
}

TEST(WholePhases, OthersStay) {
  EXPECT_EQ(made_of("op f(x: f32[C,H], w: f32[C,4]) -> (y) { y[t in 0..8] = sum(c: x[c,t/2 else 0]*w[c,t%2]) }", {{"C", 20}, {"H", 4}}), "")
      << "they come out even";
  EXPECT_EQ(made_of("op f(x: f32[H]) -> (y) { y[t in 0..7] = sum(r in 0..1: x[t/2 else 0]) }", {{"H", 4}}), "") << "one term";
  EXPECT_EQ(made_of("op f(x: f32[C,H], w: f32[C,9]) -> (y) { y[t in 0..7] = sum(c, r in 0..3: x[c,(2*t+2-2*r)/2 else 0]*w[c,r]) }",
                    {{"C", 20}, {"H", 9}}),
            "")
      << "all of the index is divided evenly";
  EXPECT_EQ(made_of("op f(x: f32[C,9], k: i32[7]) -> (y) { y[t in 0..7] = sum(c: x[c,clamp(i64(k[t]) + t%2, 0, 8)]) }", {{"C", 20}}), "")
      << "places from data";
}

}  // namespace
}  // namespace xhat::whole_phases_test
