// Long functions of vector math, a few in line and many as functions beside the code (runtime/cpu/ir/late_functions.h): the same values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ad/reverse/gradient.h"
#include "runtime/call/compile.h"
#include "runtime/cpu/kernel_compile.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/lowered_code.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::late_functions_test {
namespace {

using namespace xhat::testing;

constexpr int kMany = 60;

std::string of(const std::string& function, const std::string& x) {
  if (function == "pow") return "(" + x + ")^y[i]";
  if (function == "polygamma") return "polygamma(3, " + x + ")";  // its order decides what code it has
  return function + "(" + x + ")";
}

// The least of `count` values, whose order decides nothing.
Program least_of(const std::string& function, const std::string& type, int count) {
  std::string least = of(function, "x[i]");
  for (int k = 2; k <= count; ++k) least = "min(" + least + ", " + of(function, "x[i]*" + std::to_string(k)) + ")";
  return parse_op("op f(x: " + type + "[N], y: " + type + "[N]) -> (z) { z[i] = " + least + " + 0*y[i] }");
}

template <class Float>
void compare(const std::string& function, const std::string& type) {
  SCOPED_TRACE(function + " " + type);
  std::vector<double> x;
  for (double e = -3; e < 12; e += 0.37) x.push_back(static_cast<Float>(std::pow(10, e)));  // fills no vector at its end
  const DimValues dims = {{"N", static_cast<int64_t>(x.size())}};
  const Program one = least_of(function, type, 1), many = least_of(function, type, kMany);
  Arrays data = testing::random_data(gradient(one), dims, 1);
  data.at("y").reals.assign(x.size(), 0.7);
  const CompiledOp alone = compile(one, {});
  std::vector<double> wanted(x.size(), INFINITY);
  for (int k = 1; k <= kMany; ++k) {
    for (size_t i = 0; i < x.size(); ++i) data.at("x").reals[i] = static_cast<Float>(static_cast<Float>(x[i]) * static_cast<Float>(k));
    const Arrays got = run_infer(alone, data, dims);
    for (size_t i = 0; i < x.size(); ++i) wanted[i] = std::min(wanted[i], got.at("z").reals[i]);
  }
  data.at("x").reals = x;
  EXPECT_EQ(run_infer(compile(many, {}), data, dims).at("z").reals, wanted);
}

class LateFunctions : public ::testing::TestWithParam<const char*> {};

TEST_P(LateFunctions, HaveTheSameValuesInLineAndCalled) {
  compare<float>(GetParam(), "f32");
  compare<double>(GetParam(), "f64");
}

INSTANTIATE_TEST_SUITE_P(All, LateFunctions, ::testing::Values("sin", "tan", "erf", "pow", "polygamma"));

int functions_in(const Program& op) { return times_in(runtime::listings_of(only_spec(op, {{"N", 1000}})).statements, "external func "); }

TEST(LateFunctionsBesideTheCode, AreThereForManyAndForRareArguments) {
  EXPECT_EQ(functions_in(least_of("erf", "f32", 1)), 0);
  EXPECT_GT(functions_in(least_of("erf", "f32", kMany)), 0);
  const int few = functions_in(least_of("sin", "f32", 2)), more = functions_in(least_of("sin", "f32", 4));
  EXPECT_GT(few, 0);
  EXPECT_EQ(few, more);  // one for all that compute the same
}

}  // namespace
}  // namespace xhat::late_functions_test
