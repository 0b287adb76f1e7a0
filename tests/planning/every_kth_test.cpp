// Reductions that are read at every k-th place alone: which, and that values stay.
#include "fusion/plan/every_kth.h"

#include <gtest/gtest.h>

#include "fusion/plan/quotient_ranges.h"
#include "tests/helpers/golden.h"

namespace xhat::every_kth_test {
namespace {

using namespace xhat::testing;

// The definition of s that is made.
std::string made_of(const std::string& definitions, const DimValues& sizes = {{"D", 23}, {"E", 5}}) {
  const Program p = infer_program(parse_op("op f(x: f32[D,E], z: f32[D]) -> (y) {\n" + definitions + "\n}"));
  const Program made = every_kth_alone(with_numbers_as_divisors(p, sizes), sizes, {});
  verify(made);
  const Arrays data = random_data(p, sizes, 4);
  EXPECT_EQ(difference(evaluate_on(p, data, sizes), evaluate_on(made, data, sizes), 0), "") << print(made);
  const std::string printed = print(made);
  const size_t begin = printed.find("  s[") + 2;
  return printed.substr(begin, printed.find('\n', begin) - begin);
}

TEST(EveryKth, IsComputedAlone) {
  EXPECT_EQ(made_of("s[d] = sum(e: x[d,e]^2)\n y[d] = if (d+1)%2 == 0 then s[d]*z[d] else 0"), "s[d in 0..11] = sum(e: x[2*d+1,e]^2)");
  EXPECT_EQ(made_of("s[d] = sum(e: x[d,e]^2)\n y[d] = if (d-1)%3 == 1 && z[d] > 0 then s[d] else 1"), "s[d in 0..7] = sum(e: x[3*d+2,e]^2)");
  EXPECT_EQ(made_of("s[d] = max(e in max(0,d/2-1)..min(E,(d+1)/2+1): x[d,e])\n y[d] = if d%2 == 1 then s[d] else z[d]", {{"D", 23}, {"E", 13}}),
            "s[d in 0..11] = max(e in max(0,d-1)..min(E,d+1+1): x[2*d+1,e])");
  EXPECT_EQ(made_of("s[d,e] = sum(k: x[k,d]*x[k,e])\n y[d in 0..E,e] = if d%2 == 0 && e%3 == 2 then s[d,e] else 0", {{"D", 6}, {"E", 6}}),
            "s[d in 0..3, e in 0..2] = sum(k: x[k,2*d] * x[k,3*e+2])");
}

TEST(EveryKth, OthersStay) {
  EXPECT_EQ(made_of("s[d] = sum(e: x[d,e]^2)\n y[d] = if d%2 == 0 then s[d] else 2*s[d]"), "s[d] = sum(e: x[d,e]^2)") << "read twice";
  EXPECT_EQ(made_of("s[d] = sum(e: x[d,e]^2)\n y[d] = if d%2 == 0 || z[d] > 0 then s[d] else 0"), "s[d] = sum(e: x[d,e]^2)") << "or";
  EXPECT_EQ(made_of("s[d] = sum(e: x[d,e]^2)\n y[d in 0..D] = if d%2 == 0 then s[D-1-d] else 0"), "s[d] = sum(e: x[d,e]^2)") << "elsewhere";
  EXPECT_EQ(made_of("s[d] = sum(e: x[d,e]^2)\n y[d] = if (2*d)%4 == 0 then s[d] else 0"), "s[d] = sum(e: x[d,e]^2)") << "not the axis itself";
}

}  // namespace
}  // namespace xhat::every_kth_test
