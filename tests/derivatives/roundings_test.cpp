// What roundings amount to: operations are moved, and the results looked at.
#include <gtest/gtest.h>

#include <cmath>

#include "ad/check/harder_ranges.h"

namespace xhat::roundings_test {
namespace {

double moves(const std::string& text, const std::vector<double>& x) {
  const Program p = parse_op(text);
  HarderData d;
  d.data = {{"x", array_of(DType::f64, {static_cast<int64_t>(x.size())}, x)}};
  const DimValues dims = {{"N", static_cast<int64_t>(x.size())}};
  d.wanted = d.exact = evaluate(p, d.data, dims, kExact);
  note_moves(
      p, dims, 1, [](const std::string&) { return 0x1p-52; }, d);
  return d.moves.at("y");
}

// 1 + exp(-20) loses all but 7 digits of what is added, though the result moves with its input as little as exp(-20) does.
TEST(Roundings, CountWhatADifferenceKeepsOfItsTerms) {
  const double cancels = moves("op f(x: f64[N]) -> (y) { y[i] = (1 + exp(x[i])) - 1 }", {-20, -19});
  EXPECT_GT(cancels, 1e-17);
  EXPECT_LT(cancels, 1e-15);
  EXPECT_LT(moves("op f(x: f64[N]) -> (y) { y[i] = exp(x[i]) }", {-20, -19}), 1e-22);
  EXPECT_GT(moves("op f(x: f64[N]) -> (y) { y = sum(i: x[i]) }", {1e8, 1.5, -1e8, 0.25}), 1e-9);
}

// What is exactly 0 in real numbers, as the gradient of x / |x|, is as large as the roundings of its terms.
TEST(Roundings, CountWhereTheResultIsZero) {
  const double zero = moves("op f(x: f64[N]) -> (y) { y[i] = 1/sqrt(x[i]*x[i]) - x[i]*x[i]/(sqrt(x[i]*x[i])*(x[i]*x[i])) }", {0.7, 1.3});
  EXPECT_GT(zero, 1e-17);
  EXPECT_LT(zero, 1e-14);
}

// x - x*e/e is 0 in f32 as well as in f64, where e/e is divided. Where it is a product by 1/e, it is not.
TEST(Roundings, CountWhereTheDeclaredTypeHasNone) {
  for (const char* more : {"", " + 0.001"}) {
    const Program p = parse_op(std::string("op f(x: f32[N]) -> (y) { s = sum(k: exp(x[k])); y[i] = x[i] - x[i]*exp(x[i])/s") + more + " }");
    HarderData d;
    d.data = {{"x", array_of(DType::f32, {1}, {0.5})}};
    const DimValues dims = {{"N", 1}};
    d.wanted = evaluate(p, d.data, dims);
    d.exact = evaluate(p, d.data, dims, kExact);
    ASSERT_NEAR(d.wanted.at("y").at(0), d.exact.at("y").at(0), 1e-10);
    note_moves(
        p, dims, 1, [](const std::string&) { return 0x1p-23; }, d);
    EXPECT_GT(d.moves.at("y"), 1e-9) << more;
    EXPECT_LT(d.moves.at("y"), 1e-6) << more;
  }
}

// Equal operands are moved alike; a jump that only the larger step makes counts as what scaling that step down leaves of it.
TEST(Roundings, LeaveDecisionsAlone) {
  EXPECT_EQ(moves("op f(x: f64[N]) -> (y) { y[i] = if 3*x[i] == max(k: 3*x[k]) then 1 else 0 }", {0.1, 0.7, 0.7}), 0);
  EXPECT_LT(moves("op f(x: f64[N]) -> (y) { y[i] = if x[i]/3*3 == x[i] then 1 else 0 }", {0.5, 0.7, 0.3}), 1e-4);
}

}  // namespace
}  // namespace xhat::roundings_test
