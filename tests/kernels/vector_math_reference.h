// A row of the vector math table as a kernel, and references for functions that the standard library has not.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/cpu/ir/late_functions.h"
#include "runtime/emit/vector_math.h"

namespace xhat::vmath_test {

using Halide::Expr;
using xhat::vmath::Row;
using Real = long double;

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr long double pi = 3.141592653589793238462643383279502884L;
constexpr int lanes_f32 = 16, lanes_f64 = 8;

template <class T>
using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
template <class T>
Bits<T> bits(T x) {
  return std::bit_cast<Bits<T>>(x);
}

// One compiled pipeline per row, type and vector width.
template <class T>
class Compiled {
 public:
  Compiled(const Row& row, bool vectorize) {
    Halide::Var i("i");
    std::vector<Expr> args;
    std::vector<Halide::Argument> arguments;
    for (int k = 0; k < row.arity; k++) {
      Halide::ImageParam in(Halide::type_of<T>(), 1, "xh_in" + std::to_string(k));
      args.push_back(in(i));
      arguments.push_back(in);
    }
    Halide::Func f(std::string("xh_test_") + row.name);
    f(i) = xhat::vmath::call_of(row, args);
    if (vectorize) f.vectorize(i, sizeof(T) == 4 ? lanes_f32 : lanes_f64, Halide::TailStrategy::GuardWithIf);
    Halide::Target target = Halide::get_jit_target_from_environment().with_feature(Halide::Target::StrictFloat);
    Halide::Pipeline pipeline(f);
    xhat::runtime::write_out_late_functions(pipeline, target);
    callable_ = pipeline.compile_to_callable(arguments, target);
  }

  // Compiled once in a process, which takes longer than all calls.
  static const Compiled& of(const Row& row, bool vectorize) {
    static std::map<std::pair<std::string, bool>, Compiled> made;
    return made.try_emplace({row.name, vectorize}, row, vectorize).first->second;
  }

  // Elements [first, first + count) of the arguments.
  std::vector<T> operator()(const std::vector<std::vector<T>>& in, size_t first, size_t count) const {
    std::vector<Halide::Runtime::Buffer<T, 1>> buffers;
    for (const auto& values : in) buffers.emplace_back(const_cast<T*>(values.data()) + first, int(count));
    std::vector<T> out(count);
    Halide::Runtime::Buffer<T, 1> result(out.data(), int(count));
    Halide::JITUserContext context, *pointer = &context;
    std::vector<const void*> argv{&pointer};
    for (auto& b : buffers) argv.push_back(b.raw_buffer());
    argv.push_back(result.raw_buffer());
    EXPECT_EQ(callable_.call_argv_fast(argv.size(), argv.data()), 0);
    return out;
  }

 private:
  mutable Halide::Callable callable_;
};

// Sums of positive terms, of as many as long double needs.
inline Real bessel_reference(int order, Real x) {
  Real a = fabsl(x), sum = 0, term = order ? a / 2 : 1;
  if (a > 60) {  // the asymptotic series
    sum = term = 1;
    for (int k = 1; k < 60 && fabsl(term) > 1e-22L; k++)
      term *= ((2 * k - 1) * (2 * k - 1) - Real(4 * order * order)) / (8 * k * a), sum += term;
    return (order && x < 0 ? -sum : sum) / sqrtl(2 * pi * a);
  }
  for (int k = 1; k < 400; k++) sum += term, term *= a * a / (4 * Real(k) * (k + order));
  return (order && x < 0 ? -sum : sum) * expl(-a);
}

// digamma around its root r: the sum of (x-r)/((x+k)(r+k)), the rest by the asymptotic series.
inline Real digamma_near_root(Real x) {
  Real r = 1.4616321449683623412626595423257213L, difference = x - r, sum = 0;
  for (int k = 0; k < 60; k++, x++, r++) sum += difference / (x * r);
  auto rest = [](Real v) { return powl(v, -4) / 120 - powl(v, -6) / 252; };
  return sum + log1pl(difference / r) + difference / (2 * x * r) + difference * (x + r) / (12 * x * x * r * r) + rest(x) - rest(r);
}

// n-th derivative of lgamma, n >= 1, for x > 0, of terms up to 60 and the sum by Euler and Maclaurin.
inline Real gamma_derivative(int n, Real x) {
  Real sum = 0, factorial = 1;
  for (int k = 2; k < n; k++) factorial *= k;
  for (; x < 60; x++) sum += n == 1 ? -1 / x : powl(x, -n);
  static const Real bernoulli[] = {1 / 6.0L, -1 / 30.0L, 1 / 42.0L, -1 / 30.0L, 5 / 66.0L};
  Real term = powl(x, -n - 1) * (n == 1 ? 0.5L : n / 2.0L);
  sum += n == 1 ? logl(x) - 0.5L / x : powl(x, 1 - n) / (n - 1) + powl(x, -n) / 2;
  for (int j = 1; j <= 5; j++) {
    sum += (n == 1 ? -1 : 1) * bernoulli[j - 1] * term;
    term *= (n + 2 * j - 1.0L) * (n + 2 * j) / ((2 * j + 1.0L) * (2 * j + 2)) / (x * x);
  }
  return n == 1 ? sum : (n % 2 ? -1 : 1) * factorial * sum;
}

// By bisection of erfc.
inline Real erfinv_reference(Real x) {
  if (fabsl(x) >= 1) return fabsl(x) > 1 ? Real(nan_value) : x * inf;
  Real q = 1 - fabsl(x), y = 0;
  for (int i = 0; i < 60 && fabsl(x) < 0.5L; i++) y -= (erfl(y) - fabsl(x)) / (2 / sqrtl(pi) * expl(-y * y));
  if (fabsl(x) >= 0.5L) {
    Real low = 0, high = 7;
    for (int i = 0; i < 70; i++) (erfcl((low + high) / 2) > q ? low : high) = (low + high) / 2;
    y = (low + high) / 2;
  }
  return x < 0 ? -y : y;
}

inline Real sinc_reference(Real x) {
  const Real f = x - nearbyintl(x);
  if (x == 0) return 1;
  return (fmodl(fabsl(nearbyintl(x)), 2) == 1 ? -1 : 1) * sinl(pi * f) / (pi * x);
}

}  // namespace xhat::vmath_test
