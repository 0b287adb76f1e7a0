// Powers by quarters, which kernels compute by square roots (runtime/emit/emit_ops.cpp), beside those of libm in long double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ad/reverse/gradient.h"
#include "runtime/call/compile.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::powers_test {
namespace {

using namespace xhat::testing;

constexpr double kMaxUlp = 4;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class Float>
void compare(const std::string& type) {
  std::string text = "op f(x: " + type + "[N]) -> (", body;
  std::vector<double> exponents;
  for (int q = -15; q <= 15; ++q)
    if (q % 4 != 0) exponents.push_back(q / 4.0);
  for (size_t k = 0; k < exponents.size(); ++k) {
    text += (k ? ", y" : "y") + std::to_string(k);
    body += "y" + std::to_string(k) + "[i] = x[i]^(" + std::to_string(exponents[k]) + ")\n";
  }
  const Program op = parse_op(text + ") {\n" + body + "}");

  const double most = std::log10(static_cast<double>(std::numeric_limits<Float>::max()));
  std::vector<double> x = {0.0, -0.0, kInfinity, -kInfinity, std::nan(""), -1.0, -1e-3, 1.0};
  for (double e = -most; e < most; e += most / 500) x.push_back(static_cast<double>(static_cast<Float>(std::pow(10, e))));
  const DimValues dims = {{"N", static_cast<int64_t>(x.size())}};
  Arrays data = testing::random_data(gradient(op), dims, 1);
  data.at("x").reals = x;
  const Arrays got = run_infer(compile(op, {}), data, dims);

  for (size_t k = 0; k < exponents.size(); ++k)
    for (size_t i = 0; i < x.size(); ++i) {
      const auto exact = std::pow(static_cast<long double>(x[i]), static_cast<long double>(exponents[k]));
      const double wanted = static_cast<double>(static_cast<Float>(exact)), value = got.at("y" + std::to_string(k)).reals[i];
      SCOPED_TRACE(std::to_string(x[i]) + "^" + std::to_string(exponents[k]));
      if (std::isnan(wanted)) {
        EXPECT_TRUE(std::isnan(value)) << value;
      } else if (std::isinf(wanted) && std::isfinite(x[i]) && x[i] != 0) {  // its neighbour is finite
        EXPECT_GE(value, std::numeric_limits<Float>::max() * (1 - kMaxUlp * std::numeric_limits<Float>::epsilon()));
      } else if (std::isinf(wanted) || wanted == 0) {
        EXPECT_EQ(value, wanted);
        EXPECT_EQ(std::signbit(value), std::signbit(wanted));
      } else {
        const double least = std::numeric_limits<Float>::min();
        const double ulp = std::max(std::abs(wanted), least) * std::numeric_limits<Float>::epsilon();
        EXPECT_LE(std::abs(value - wanted), kMaxUlp * ulp) << value << " for " << wanted;
      }
    }
}

TEST(PowersByQuarters, HaveTheDigitsOfLibm) {
  compare<float>("f32");
  compare<double>("f64");
}

TEST(PowersByQuarters, CostRootsAndProducts) {
  Arena a;
  const Id x = a.axis("i");
  auto cost = [&](double k) { return cost_ps(a, a[a.binary(Op::pow, a.cast(DType::f64, x), a.constant(DType::f64, k))]); };
  EXPECT_LT(cost(1.5), cost(1.4));
  EXPECT_LT(cost(0.5), cost(0.75));
  EXPECT_EQ(cost(4.25), cost(1.4));
}

}  // namespace
}  // namespace xhat::powers_test
