// Every row of the vector math table against long double libm: errors within the row's claim, the same bits
// from vector body, tail and scalar code, and the special values. XHAT_VECTOR_MATH_REPORT=1 prints the
// measured maxima.
#include "runtime/emit/vector_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/kernels/vector_math_reference.h"

namespace vector_math_test {
namespace {

using namespace xhat::vmath_test;

Real sigmoid_reference(Real x) { return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x)); }

template <class T>
Real reference(const std::string& name, const T* a) {
  Real x = a[0], y = a[1];
  if (name == "exp2") return exp2l(x);
  if (name == "log2") return log2l(x);
  if (name == "log10") return log10l(x);
  if (name == "sinh") return sinhl(x);
  if (name == "cosh") return coshl(x);
  if (name == "asin") return asinl(x);
  if (name == "acos") return acosl(x);
  if (name == "atan") return atanl(x);
  if (name == "atan2") return atan2l(x, y);
  if (name == "asinh") return asinhl(x);
  if (name == "acosh") return acoshl(x);
  if (name == "atanh") return atanhl(x);
  if (name == "hypot") return hypotl(x, y);
  if (name == "cbrt") return cbrtl(x);
  if (name == "fmod") return fmodl(x, y);
  if (name == "remainder") return remainderl(x, y);
  if (name == "copysign") return copysignl(x, y);
  if (name == "trunc") return truncl(x);
  if (name == "sinc") return sinc_reference(x);
  if (name == "logaddexp") return fmaxl(x, y) + log1pl(expl(-fabsl(x - y)));
  if (name == "erfc") return erfcl(x);
  if (name == "erfinv") return erfinv_reference(x);
  if (name == "lgamma") return lgammal(x);
  if (name == "digamma") return fabsl(x - 1.4616321449683623L) < 0.2L ? digamma_near_root(x) : gamma_derivative(1, x);
  if (name == "polygamma") return gamma_derivative(int(x) + 1, y);
  if (name == "i0e") return bessel_reference(0, x);
  if (name == "i1e") return bessel_reference(1, x);
  if (name == "exp") return expl(x);
  if (name == "expm1") return expm1l(x);
  if (name == "log") return logl(x);
  if (name == "log1p") return log1pl(x);
  if (name == "tanh") return tanhl(x);
  if (name == "sigmoid") return sigmoid_reference(x);
  if (name == "softplus") return (x > 0 ? x : 0) + log1pl(expl(-fabsl(x)));
  if (name == "erf") return erfl(x);
  if (name == "sin") return sinl(x);
  if (name == "cos") return cosl(x);
  if (name == "tan") return tanl(x);
  if (name == "pow") return powl(x, a[1]);
  if (name == "sqrt") return sqrtl(x);
  if (name == "rsqrt") return 1 / sqrtl(x);
  if (name == "max") return std::fmax(a[0], a[1]);
  if (name == "min") return std::fmin(a[0], a[1]);
  if (name == "sign") return x > 0 ? 1 : x < 0 ? -1 : 0;
  if (name == "abs") return fabsl(x);
  if (name == "floor") return floorl(x);
  if (name == "ceil") return ceill(x);
  if (name == "round") return std::nearbyint(a[0]);
  if (name == "mod") {
    volatile T quotient = a[0] / a[1], product = a[1] * std::floor(quotient);  // volatile: no contraction
    return a[0] - product;
  }
  if (name == "fma") return std::fma(a[0], a[1], a[2]);
  ADD_FAILURE() << "no reference for " << name;
  return 0;
}

// |got - want| in units of the last place of T at `want`; beyond the largest finite value 2^max_exponent
// stands for inf.
template <class T>
Real ulps(T got, Real want) {
  using Limits = std::numeric_limits<T>;
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want) ? 0 : inf;
  Real top = ldexpl(1, Limits::max_exponent);
  Real g = std::isinf(got) ? copysignl(top, got) : Real(got);
  Real w = fabsl(want) > top ? copysignl(top, want) : want;
  int exponent = w == 0 ? Limits::min_exponent : std::max(ilogbl(w) + 1, Limits::min_exponent);
  exponent = std::min(exponent, Limits::max_exponent);
  return fabsl(g - w) / ldexpl(1, exponent - Limits::digits);
}

// All floats in order, as integers: the lattice steps evenly through exponents, subnormals included.
template <class T>
int64_t ordered(T x) {
  auto b = int64_t(bits(std::fabs(x)));
  return std::signbit(x) ? -b : b;
}
template <class T>
T from_ordered(int64_t n) {
  T magnitude = std::bit_cast<T>(Bits<T>(n < 0 ? -n : n));
  return n < 0 ? -magnitude : magnitude;
}

template <class T>
std::vector<T> lattice(double low, double high, int count) {
  std::vector<T> x;
  int64_t first = ordered(T(low)), last = ordered(T(high));
  for (int i = 0; i <= count; i++)
    x.push_back(from_ordered<T>(int64_t(Real(first) + (Real(last) - Real(first)) * i / count)));
  return x;
}
template <class T>
void add_uniform(std::vector<T>& x, double low, double high, int count) {
  for (int i = 0; i <= count; i++) x.push_back(T(low + (high - low) * i / count));
}

uint64_t mix(uint64_t n) {  // splitmix64, for deterministic pairs
  n += 0x9e3779b97f4a7c15u;
  n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9u;
  n = (n ^ (n >> 27)) * 0x94d049bb133111ebu;
  return n ^ (n >> 31);
}

template <class T>
std::vector<std::vector<T>> grid(const Row& row) {
  double low = row.low, high = row.high;
  if (sizeof(T) == 8 && low == -std::numeric_limits<float>::max()) low = -1e300;
  if (sizeof(T) == 8 && high == std::numeric_limits<float>::max()) high = 1e300;
  std::vector<T> x = lattice<T>(low, high, sizeof(T) == 4 ? 120000 : 60000);
  for (double reach : {2.0, 100.0, 1e4})
    add_uniform(x, std::max(low, -reach), std::min(high, reach), sizeof(T) == 4 ? 30000 : 15000);
  std::vector<std::vector<T>> in{x};
  for (int k = 1; k < row.arity; k++) {
    std::vector<T> y(x.size());
    for (size_t i = 0; i < y.size(); i++) {
      uint64_t random = mix(i * 4 + uint64_t(k));
      double unit = double(random >> 11) * 0x1p-53 * 2 - 1;
      y[i] = T(i % 3 == 0   ? unit * 200
               : i % 3 == 1 ? unit * std::ldexp(1.0, int(random % 60) - 30)
                            : std::round(unit * 12));
    }
    in.push_back(y);
  }
  if (std::string(row.name) == "pow")  // a base whose power by y is mostly in range, and often close to 1
    for (size_t i = 0; i < x.size(); i++) {
      double span = (sizeof(T) == 4 ? 150.0 : 1070.0) / std::max(1e-3, std::fabs(double(in[1][i])));
      double exponent =
          (double(mix(i * 4) >> 11) * 0x1p-53 * 2 - 1) * std::min(span, sizeof(T) == 4 ? 149.0 : 1000.0);
      in[0][i] = T(std::exp2(exponent)) * T(i % 3 == 2 && i % 2 == 0 ? -1 : 1);
    }
  if (std::string(row.name) == "polygamma")
    for (size_t i = 0; i < x.size(); i++) in[0][i] = T(i % 5), in[1][i] = std::fabs(in[1][i]) + T(0.01);
  if (std::string(row.name) == "logaddexp")  // operands that are apart as exp is not nothing; a sum near 0 has few digits of its own
    for (size_t i = 0; i < x.size(); i++) in[0][i] = 1 + std::fabs(in[0][i]), in[1][i] = in[0][i] + T(std::fmod(double(in[1][i]), 90));
  while (in[0].size() % 16 != 7)
    for (auto& v : in) v.push_back(v.front());  // an odd size, so that there is a tail
  return in;
}

template <class T>
void expect_accurate(const Row& row, double claim, const std::vector<std::vector<T>>& in) {
  size_t n = in[0].size();
  const Compiled<T>& kernel = Compiled<T>::of(row, true);
  std::vector<T> vector = kernel(in, 0, n), shifted = kernel(in, 5, n - 5),
                 scalar = Compiled<T>::of(row, false)(in, 0, n);
  Real worst = 0;
  size_t where = 0, different = 0;
  for (size_t i = 0; i < n; i++) {
    T a[3] = {in[0][i], row.arity > 1 ? in[1][i] : T(0), row.arity > 2 ? in[2][i] : T(0)};
    Real error = ulps(vector[i], reference(row.name, a));
    if (!(error <= worst)) worst = error, where = i;
    bool same = bits(vector[i]) == bits(scalar[i]) && (i < 5 || bits(vector[i]) == bits(shifted[i - 5]));
    if (!same && !std::isnan(vector[i])) different++;
  }
  EXPECT_LE(worst, claim) << row.name << " at " << double(in[0][where]) << ", " << double(in.back()[where])
                          << ": " << double(vector[where]);
  EXPECT_EQ(different, 0u) << row.name << ": vector body, tail and scalar code differ";
  if (std::getenv("XHAT_VECTOR_MATH_REPORT"))
    std::printf("%-9s f%zu max ulp %.3Lf at %.9g\n", row.name, 8 * sizeof(T), worst, double(in[0][where]));
}

class VectorMath : public ::testing::TestWithParam<Row> {};

TEST_P(VectorMath, SingleWithinClaimAndSameBits) {
  expect_accurate(GetParam(), GetParam().max_ulp_f32, grid<float>(GetParam()));
}
TEST_P(VectorMath, DoubleWithinClaimAndSameBits) {
  expect_accurate(GetParam(), GetParam().max_ulp_f64, grid<double>(GetParam()));
}

TEST(VectorMathExp, IsZeroInsteadOfSubnormal) {
  const Row& row = *xhat::vmath::find_row("exp");
  std::vector<std::vector<float>> in = {{-86.9f, -87.4f, -90.0f, -103.0f, -104.0f}};
  auto out = Compiled<float>(row, true)(in, 0, 5);
  EXPECT_NEAR(out[0], std::exp(-86.9f), 1e-6f * std::exp(-86.9f));
  for (size_t i = 1; i < 5; ++i) EXPECT_EQ(out[i], 0) << in[0][i];
}

// Beyond the rows' 1e4, where Payne-Hanek takes over; 3 ulp at the floats nearest to a zero.
TEST(VectorMathLargeAngles, SingleWithinThreeUlp) {
  constexpr double big = std::numeric_limits<float>::max();
  std::vector<float> x = lattice<float>(9000, big, 150000), negative = lattice<float>(-big, -9000, 30000);
  x.insert(x.end(), negative.begin(), negative.end());
  // floats next to multiples of pi/2, and 3.16453146e19, the worst of 7e7 tried
  for (int n = 6000; n < 20000; n++) x.push_back(float(n * 1.57079632679489661923L));
  x.push_back(3.16453146e19f);
  for (const char* name : {"sin", "cos"}) expect_accurate<float>(*xhat::vmath::find_row(name), 3, {x});
  expect_accurate<float>(*xhat::vmath::find_row("tan"), 4, {x});
}

// Doubles next to multiples of pi/2, up to where libm takes over and beyond.
TEST(VectorMathLargeAngles, DoubleWithinThreeUlp) {
  constexpr double quarter = 1.57079632679489661923;
  std::vector<double> x;
  for (int n = 1; n < 20000; n++) x.push_back(n * quarter);
  for (int n = 63'600'000; n < 63'680'000; n += 7) x.push_back(n * quarter);  // around 1e8
  for (double v = 1e-300; v < 1e300; v *= 1.37) x.push_back(v), x.push_back(-v);
  for (const char* name : {"sin", "cos", "tan"}) expect_accurate<double>(*xhat::vmath::find_row(name), 3, {x});
}

// Floats of every magnitude at even steps of their bits. The figures of docs/numerics.md are made with
// XHAT_VECTOR_MATH_STEP=61, which takes minutes; the default is a prime, too.
TEST(VectorMathDense, EvenlySpacedFloats) {
  const char* chosen = std::getenv("XHAT_VECTOR_MATH_STEP");
  const uint64_t step = chosen ? std::strtoull(chosen, nullptr, 10) : 40009;
  ASSERT_GT(step, 0u);
  constexpr uint64_t chunk = uint64_t{1} << 20, end = uint64_t{1} << 32;
  for (const Row& row : xhat::vmath::rows()) {
    if (row.arity != 1 || row.max_ulp_f32 == 0) continue;
    Compiled<float> kernel(row, true);
    Real worst = 0;
    float where = 0;
    for (uint64_t pattern = 0; pattern < end;) {
      std::vector<float> x;
      for (; x.size() < chunk && pattern < end; pattern += step) {
        auto value = std::bit_cast<float>(uint32_t(pattern));
        if (value >= row.low && value <= row.high) x.push_back(value);
      }
      std::vector<float> y = kernel({x}, 0, x.size());
      for (size_t i = 0; i < x.size(); i++) {
        Real error = ulps(y[i], reference(row.name, &x[i]));
        if (!(error <= worst)) worst = error, where = x[i];
      }
    }
    if (chosen) std::printf("%-9s max ulp %.3Lf at %.9g\n", row.name, worst, double(where));
    EXPECT_LE(worst, row.max_ulp_f32) << row.name;
  }
}

struct Special {
  const char* name;
  double a, b, want;
};
constexpr double tiny = 0x1p-149;  // the least f32; as f64 it is normal

// clang-format off
const Special specials[] = {
    {"exp", nan_value, 0, nan_value}, {"exp", inf, 0, inf}, {"exp", -inf, 0, 0}, {"exp", 1000, 0, inf},
    {"exp", -2000, 0, 0}, {"exp", 0, 0, 1}, {"exp", -0.0, 0, 1},
    {"expm1", nan_value, 0, nan_value}, {"expm1", inf, 0, inf}, {"expm1", -inf, 0, -1},
    {"expm1", 1000, 0, inf}, {"expm1", 0, 0, 0},
    {"log", nan_value, 0, nan_value}, {"log", inf, 0, inf}, {"log", -inf, 0, nan_value},
    {"log", -1, 0, nan_value}, {"log", 0, 0, -inf}, {"log", -0.0, 0, -inf}, {"log", 1, 0, 0},
    {"log", -tiny, 0, nan_value},
    {"log1p", nan_value, 0, nan_value}, {"log1p", inf, 0, inf}, {"log1p", -inf, 0, nan_value},
    {"log1p", -1, 0, -inf}, {"log1p", -1.5, 0, nan_value}, {"log1p", 0, 0, 0}, {"log1p", tiny, 0, tiny},
    {"tanh", nan_value, 0, nan_value}, {"tanh", inf, 0, 1}, {"tanh", -inf, 0, -1}, {"tanh", 0, 0, 0},
    {"tanh", -0.0, 0, -0.0}, {"tanh", tiny, 0, tiny}, {"tanh", -1e30, 0, -1},
    {"sigmoid", nan_value, 0, nan_value}, {"sigmoid", inf, 0, 1}, {"sigmoid", -inf, 0, 0},
    {"sigmoid", 0, 0, 0.5},
    {"softplus", nan_value, 0, nan_value}, {"softplus", inf, 0, inf}, {"softplus", -inf, 0, 0},
    {"softplus", 1000, 0, 1000}, {"softplus", -2000, 0, 0},
    {"erf", nan_value, 0, nan_value}, {"erf", inf, 0, 1}, {"erf", -inf, 0, -1}, {"erf", -0.0, 0, -0.0},
    {"erf", 30, 0, 1},
    {"sin", nan_value, 0, nan_value}, {"sin", inf, 0, nan_value}, {"sin", -inf, 0, nan_value},
    {"sin", -0.0, 0, -0.0},
    {"cos", nan_value, 0, nan_value}, {"cos", inf, 0, nan_value}, {"cos", -inf, 0, nan_value},
    {"cos", 0, 0, 1},
    {"tan", nan_value, 0, nan_value}, {"tan", inf, 0, nan_value}, {"tan", -inf, 0, nan_value},
    {"tan", -0.0, 0, -0.0},
    {"sqrt", -1, 0, nan_value}, {"sqrt", -0.0, 0, -0.0}, {"sqrt", inf, 0, inf},
    {"sqrt", nan_value, 0, nan_value},
    {"rsqrt", 0, 0, inf}, {"rsqrt", -0.0, 0, -inf}, {"rsqrt", inf, 0, 0}, {"rsqrt", -1, 0, nan_value},
    {"rsqrt", nan_value, 0, nan_value}, {"rsqrt", 4, 0, 0.5},
    {"max", nan_value, 1, nan_value}, {"max", 1, nan_value, nan_value}, {"max", -inf, inf, inf},
    {"max", 2, 3, 3},
    {"min", nan_value, 1, nan_value}, {"min", 1, nan_value, nan_value}, {"min", -inf, inf, -inf},
    {"min", 2, 3, 2},
    {"sign", nan_value, 0, nan_value}, {"sign", 0, 0, 0}, {"sign", -0.0, 0, -0.0}, {"sign", -inf, 0, -1},
    {"sign", tiny, 0, 1},
    {"abs", -inf, 0, inf}, {"abs", -0.0, 0, 0}, {"abs", nan_value, 0, nan_value},
    {"floor", -0.5, 0, -1}, {"floor", inf, 0, inf}, {"floor", nan_value, 0, nan_value},
    {"floor", -0.0, 0, -0.0},
    {"ceil", -0.5, 0, -0.0}, {"ceil", -inf, 0, -inf}, {"ceil", nan_value, 0, nan_value},
    {"ceil", 1.25, 0, 2},
    {"round", 0.5, 0, 0}, {"round", 1.5, 0, 2}, {"round", 2.5, 0, 2}, {"round", -0.5, 0, -0.0},
    {"round", -1.5, 0, -2}, {"round", inf, 0, inf}, {"round", nan_value, 0, nan_value},
    {"mod", 5, 3, 2}, {"mod", -5, 3, 1}, {"mod", 5, -3, -1}, {"mod", 5, 0, nan_value},
    {"mod", nan_value, 3, nan_value}, {"mod", inf, 3, nan_value}, {"mod", 1, nan_value, nan_value},
    {"exp2", nan_value, 0, nan_value}, {"exp2", inf, 0, inf}, {"exp2", -inf, 0, 0}, {"exp2", 3, 0, 8}, {"exp2", -20, 0, 0x1p-20},
    {"exp2", 2000, 0, inf}, {"exp2", 0, 0, 1},
    {"log2", 8, 0, 3}, {"log2", 0x1p-100, 0, -100}, {"log2", 0, 0, -inf}, {"log2", -1, 0, nan_value}, {"log2", inf, 0, inf}, {"log2", 1, 0, 0},
    {"log10", 1000, 0, 3}, {"log10", 1e10, 0, 10}, {"log10", 100, 0, 2}, {"log10", 0, 0, -inf}, {"log10", -1, 0, nan_value}, {"log10", inf, 0, inf},
    {"sinh", 0, 0, 0}, {"sinh", -0.0, 0, -0.0}, {"sinh", inf, 0, inf}, {"sinh", -inf, 0, -inf}, {"sinh", nan_value, 0, nan_value},
    {"sinh", 1000, 0, inf}, {"cosh", 0, 0, 1}, {"cosh", -inf, 0, inf}, {"cosh", nan_value, 0, nan_value}, {"cosh", -1000, 0, inf},
    {"asin", -0.0, 0, -0.0}, {"asin", 1.5, 0, nan_value}, {"asin", nan_value, 0, nan_value}, {"asin", -inf, 0, nan_value},
    {"acos", 1, 0, 0}, {"acos", -1.5, 0, nan_value}, {"acos", inf, 0, nan_value},
    {"atan", -0.0, 0, -0.0}, {"atan", nan_value, 0, nan_value}, {"atan2", 0, 1, 0}, {"atan2", -0.0, 2, -0.0}, {"atan2", 0, 0, 0},
    {"atan2", 1, inf, 0}, {"atan2", nan_value, 0, nan_value}, {"atan2", 0, nan_value, nan_value}, {"atan2", 1, nan_value, nan_value},
    {"asinh", -0.0, 0, -0.0}, {"asinh", -inf, 0, -inf}, {"asinh", nan_value, 0, nan_value}, {"acosh", 1, 0, 0}, {"acosh", 0.5, 0, nan_value},
    {"acosh", -1e30, 0, nan_value}, {"acosh", inf, 0, inf}, {"acosh", -inf, 0, nan_value}, {"atanh", 1, 0, inf}, {"atanh", -1, 0, -inf},
    {"atanh", -0.0, 0, -0.0}, {"atanh", 2, 0, nan_value}, {"atanh", nan_value, 0, nan_value},
    {"hypot", 3, 4, 5}, {"hypot", 1e30, 0, 1e30}, {"hypot", inf, -1, inf}, {"hypot", nan_value, inf, nan_value}, {"hypot", 0, -0.0, 0},
    {"cbrt", 27, 0, 3}, {"cbrt", -8, 0, -2}, {"cbrt", -0.0, 0, -0.0}, {"cbrt", -inf, 0, -inf}, {"cbrt", nan_value, 0, nan_value},
    {"fmod", 5.5, 2, 1.5}, {"fmod", -5.5, 2, -1.5}, {"fmod", 5.5, -2, 1.5}, {"fmod", -4, 2, -0.0}, {"fmod", 3, inf, 3}, {"fmod", 3, 0, nan_value},
    {"fmod", inf, 3, nan_value}, {"fmod", nan_value, 3, nan_value}, {"fmod", 3, nan_value, nan_value}, {"fmod", -0.0, 2, -0.0},
    {"remainder", 5.5, 2, -0.5}, {"remainder", 5, 2, 1}, {"remainder", 7, 2, -1}, {"remainder", -1, 2, -1}, {"remainder", 1, 2, 1},
    {"remainder", 3, 2, -1}, {"remainder", 3, inf, 3}, {"remainder", 3, 0, nan_value}, {"remainder", inf, 3, nan_value}, {"remainder", 3, nan_value, nan_value},
    {"copysign", 3, -0.0, -3}, {"copysign", -3, 1, 3}, {"copysign", 0, -1, -0.0}, {"copysign", 1, nan_value, nan_value}, {"copysign", nan_value, 1, nan_value},
    {"trunc", -0.5, 0, -0.0}, {"trunc", 2.7, 0, 2}, {"trunc", -2.7, 0, -2}, {"trunc", -inf, 0, -inf}, {"trunc", nan_value, 0, nan_value},
    {"sinc", 0, 0, 1}, {"sinc", -0.0, 0, 1}, {"sinc", inf, 0, 0}, {"sinc", nan_value, 0, nan_value},
    {"logaddexp", -inf, -inf, -inf}, {"logaddexp", inf, inf, inf}, {"logaddexp", -inf, 2, 2}, {"logaddexp", inf, -inf, inf},
    {"logaddexp", nan_value, inf, nan_value}, {"logaddexp", 1, nan_value, nan_value},
    {"erfc", inf, 0, 0}, {"erfc", -inf, 0, 2}, {"erfc", nan_value, 0, nan_value}, {"erfc", 40, 0, 0}, {"erfc", -40, 0, 2},
    {"erfinv", 0, 0, 0}, {"erfinv", -0.0, 0, -0.0}, {"erfinv", 1, 0, inf}, {"erfinv", -1, 0, -inf}, {"erfinv", 1.5, 0, nan_value}, {"erfinv", nan_value, 0, nan_value},
    {"lgamma", 1, 0, 0}, {"lgamma", 2, 0, 0}, {"lgamma", 0, 0, inf}, {"lgamma", -3, 0, inf}, {"lgamma", inf, 0, inf}, {"lgamma", -inf, 0, inf}, {"lgamma", nan_value, 0, nan_value},
    {"digamma", 0, 0, -inf}, {"digamma", -0.0, 0, inf}, {"digamma", -2, 0, nan_value}, {"digamma", inf, 0, inf}, {"digamma", -inf, 0, nan_value}, {"digamma", nan_value, 0, nan_value},
    {"polygamma", 1, inf, 0}, {"polygamma", 1, 0, inf}, {"polygamma", 0.5, 1, nan_value}, {"polygamma", 1, nan_value, nan_value}, {"polygamma", 1, -2, inf},
    {"i0e", 0, 0, 1}, {"i0e", inf, 0, 0}, {"i0e", -inf, 0, 0}, {"i0e", nan_value, 0, nan_value}, {"i1e", 0, 0, 0}, {"i1e", -0.0, 0, -0.0},
    {"i1e", inf, 0, 0}, {"i1e", nan_value, 0, nan_value},
    // C99, Annex F
    {"pow", 0, 0, 1}, {"pow", nan_value, 0, 1}, {"pow", inf, -0.0, 1}, {"pow", 1, nan_value, 1},
    {"pow", 1, inf, 1}, {"pow", -1, inf, 1}, {"pow", -1, -inf, 1}, {"pow", -1, nan_value, nan_value},
    {"pow", nan_value, 1, nan_value}, {"pow", 2, nan_value, nan_value}, {"pow", 0, 3, 0},
    {"pow", -0.0, 3, -0.0}, {"pow", -0.0, 2, 0}, {"pow", -0.0, 0.5, 0}, {"pow", 0, -3, inf},
    {"pow", -0.0, -3, -inf}, {"pow", -0.0, -2, inf}, {"pow", -0.0, -0.5, inf}, {"pow", -0.0, -inf, inf},
    {"pow", 0.5, inf, 0}, {"pow", 0.5, -inf, inf}, {"pow", 2, inf, inf}, {"pow", 2, -inf, 0},
    {"pow", -2, inf, inf}, {"pow", -2, -inf, 0}, {"pow", -0.5, inf, 0}, {"pow", inf, 2, inf},
    {"pow", inf, -2, 0}, {"pow", -inf, 3, -inf}, {"pow", -inf, 2, inf}, {"pow", -inf, 0.5, inf},
    {"pow", -inf, -3, -0.0}, {"pow", -inf, -2, 0}, {"pow", -inf, inf, inf}, {"pow", -inf, -inf, 0},
    {"pow", -2, 3, -8}, {"pow", -2, 2, 4}, {"pow", -2, 0.5, nan_value}, {"pow", -2, -3, -0.125},
    {"pow", 2, 10, 1024}, {"pow", 4, 0.5, 2}, {"pow", 10, 1000, inf}, {"pow", -10, 1001, -inf},
    {"pow", 10, -1000, 0},
};
// clang-format on

template <class T>
void expect_specials(const Row& row) {
  std::vector<T> a, b, want;
  for (const Special& s : specials)
    if (std::string(s.name) == row.name) a.push_back(T(s.a)), b.push_back(T(s.b)), want.push_back(T(s.want));
  if (a.empty()) return;
  size_t n = a.size();
  while (a.size() < 48) a.push_back(a.front()), b.push_back(b.front()), want.push_back(want.front());
  std::vector<std::vector<T>> in{a};
  if (row.arity == 2) in.push_back(b);
  std::vector<T> vector = Compiled<T>::of(row, true)(in, 0, 48), scalar = Compiled<T>::of(row, false)(in, 0, 48);
  for (size_t i = 0; i < n; i++)
    for (T got : {vector[i], scalar[i]}) {
      bool right = std::isnan(want[i]) ? std::isnan(got) : bits(got) == bits(want[i]);
      EXPECT_TRUE(right) << row.name << "(" << double(a[i]) << ", " << double(b[i]) << ") f" << 8 * sizeof(T)
                         << " = " << double(got) << ", not " << double(want[i]);
    }
}

TEST_P(VectorMath, SingleSpecials) { expect_specials<float>(GetParam()); }
TEST_P(VectorMath, DoubleSpecials) { expect_specials<double>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Rows, VectorMath, ::testing::ValuesIn(xhat::vmath::rows()),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace vector_math_test
