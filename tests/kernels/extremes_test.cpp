// Where extremes are: the first of equal ones, the first NaN, in lanes along the axis and along the results.
#include <gtest/gtest.h>

#include <limits>

#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::extremes_test {
namespace {

using namespace xhat::testing;

constexpr const char* kAlong = "op f(x: f32[N,K]) -> (y, z) { y[n] = argmax(k: x[n,k]); z[n] = argmin(k: x[n,k]) }";
constexpr const char* kColumns = "op f(x: f32[K,N]) -> (y, z) { y[n] = argmax(k: x[k,n]); z[n] = argmin(k: -x[k,n]) }";
constexpr const char* kDoubles = "op f(x: f64[N,K]) -> (y, z) { y[n] = argmax(k: x[n,k]); z[n] = argmin(k: x[n,k]*x[n,k]) }";
constexpr const char* kIntegers = "op f(x: i32[N,K]) -> (y, z) { y[n] = argmax(k: x[n,k]); z[n] = argmin(k: x[n,k]) }";
constexpr const char* kPairs = "op f(x: f32[N,K]) -> (y) { y[n,m in 0..N] = argmax(k: x[n,k] + x[m,k]) }";

void expect_agreement(const char* text, int64_t n, int64_t k, int kind) {
  const DimValues dims = {{"N", n}, {"K", k}};
  SCOPED_TRACE(std::string(text) + dims_text(dims) + ", kind " + std::to_string(kind));
  const Program op = parse_op(text);
  Arrays data = random_data(op, dims, 5);
  Array& x = data.at("x");
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < x.size(); ++i) {
    const auto turn = static_cast<int64_t>(i * 7919 % 13);
    if (!is_float(x.type)) {
      x.integers[i] = kind == 0 ? turn : turn % 3;
      continue;
    }
    if (kind == 1) x.reals[i] = static_cast<double>(turn % 3);  // ties
    if (kind == 2 && turn == 5) x.reals[i] = nan;               // a few
    if (kind == 3) x.reals[i] = turn < 6 ? -infinity : turn == 6 ? infinity : x.reals[i];
    if (kind == 4) x.reals[i] = -infinity;  // all
    if (kind == 5) x.reals[i] = nan;
  }
  for (int threads : {1, 2}) {
    CompileOptions options;
    options.machine.serial_bytes = 16;
    options.threads = threads;
    const Arrays right = evaluate_on(op, data, dims), found = run_infer(compile(op, options), data, dims);
    for (const auto& [name, array] : right) EXPECT_EQ(found.at(name).integers, array.integers) << name;
  }
}

TEST(Extremes, FirstPlaces) {
  for (const char* text : {kAlong, kColumns, kDoubles, kIntegers, kPairs})
    for (auto [n, k] : {std::pair{37, 300}, {64, 65}, {19, 7}, {1, 1}, {130, 33}})
      for (int kind = 0; kind < (text == kIntegers ? 2 : 6); ++kind) expect_agreement(text, n, k, kind);
}

}  // namespace
}  // namespace xhat::extremes_test
