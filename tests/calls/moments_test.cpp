// Mean and variance from those of parts (fusion/plan/chunked_variance.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ad/reverse/gradient.h"
#include "fusion/plan/chunked_variance.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::moments_test {
namespace {

using namespace xhat::testing;

constexpr const char* kBatchNorm = R"(op f(x: f32[N,C,H,W], gamma: f32[C], beta: f32[C]) -> (y) {
  mu[c] = mean(n,h,w: x[n,c,h,w])
  var[c] = mean(n,h,w: (x[n,c,h,w] - mu[c])^2)
  y[n,c,h,w] = (x[n,c,h,w] - mu[c]) / sqrt(var[c] + 1e-5) * gamma[c] + beta[c]
})";
constexpr const char* kVariance = R"(op f(x: f32[N,C,H]) -> (m, v) {
  m[c] = sum(n,h: x[n,c,h]) / (f32(N) * f32(H))
  v[c] = sum(n,h: (x[n,c,h] - m[c]) * (x[n,c,h] - m[c])) / (N * H)
})";

CompileOptions beyond_cache(int threads = 1) {
  CompileOptions o;
  o.threads = threads;
  o.machine.serial_bytes = 512;
  o.machine.tile_bytes = 4096;
  o.machine.cache_bytes = 2048;
  o.machine.least_tiles = 2;
  return o;
}

TEST(Moments, OfPartsAreThoseOfTheWhole) {
  for (const char* text : {kBatchNorm, kVariance})
    for (int64_t n : {2, 9}) {
      const Program op = parse_op(text), derived = gradient(op);
      const DimValues dims = {{"N", n}, {"C", 3}, {"H", 17}, {"W", 19}};
      SCOPED_TRACE(std::string(text) + dims_text(dims));
      const Arrays data = random_data(derived, dims, 11);
      const CompiledOp one = compile(op, beyond_cache());
      EXPECT_EQ(difference(evaluate_on(derived, data, dims), run_both(one, data, dims), 1e-4), "");
      EXPECT_EQ(run_both(compile(op, beyond_cache(4)), data, dims), run_both(one, data, dims));
    }
}

TEST(Moments, TwoLooks) {
  const PlanRequest request = {.machine = beyond_cache().machine};
  const DimValues sizes = {{"N", 9}, {"C", 3}, {"H", 17}, {"W", 19}};
  EXPECT_EQ(compile(parse_op(kBatchNorm), beyond_cache()).plan(CompiledOp::Phase::infer, sizes).sweeps(), 2);
  EXPECT_EQ(plan_kernels(infer_program(derive(parse_op(kBatchNorm)).program), sizes, request).sweeps(), 3) << "without the pass";
  auto parts = [&](const char* text, const DimValues& dims) {
    const Program p = infer_program(derive(parse_op(text)).program);
    return variance_by_chunks(p, dims, request).forward.definitions.size() - p.forward.definitions.size();
  };
  EXPECT_EQ(parts(kBatchNorm, sizes), 4u);
  EXPECT_EQ(parts(kVariance, {{"N", 9}, {"C", 3}, {"H", 170}}), 4u);
  EXPECT_EQ(parts(kVariance, {{"N", 2}, {"C", 3}, {"H", 17}}), 0u) << "in cache";
  EXPECT_EQ(parts(kVariance, {{"N", 2}, {"C", 3}, {"H", 1700}}), 0u) << "so are no parts";
  EXPECT_EQ(parts("op f(x: f32[N,C,H]) -> (v) { m[c] = mean(n,h: x[n,c,h]); v[c] = sum(n,h: (x[n,c,h] - m[c]/2)^2) }", sizes), 0u);
  EXPECT_EQ(parts("op f(x: f32[N,C,H]) -> (v) { m[c] = mean(n,h: x[n,c,h]); v[c] = sum(n,h: (x[n,c,h]*2 - m[c])^2) }", sizes), 0u);
}

// A mean that is large beside the deviations: off by the roundings of the mean itself, to f32 when it is stored and when it is divided,
// and not by those of sums of large terms. The deviations are 1, and y is off by that of the mean.
TEST(Moments, ALargeMean) {
  const DimValues dims = {{"N", 40}, {"C", 3}, {"H", 50}, {"W", 70}};
  for (double mean : {1e4, 1e6}) {
    const Program op = parse_op(kBatchNorm), derived = gradient(op);
    Arrays data = random_data(derived, dims, 13);
    for (double& v : data.at("x").reals) v = static_cast<float>(mean + v);
    for (double& v : data.at("gamma").reals) v = 1;
    const Arrays exact = evaluate_on(derived, data, dims), got = run_both(compile(op, beyond_cache()), data, dims);
    double worst = 0;
    for (size_t i = 0; i < got.at("y").size(); ++i) worst = std::max(worst, std::fabs(got.at("y").reals[i] - exact.at("y").reals[i]));
    EXPECT_LE(worst, mean * 0x1p-23) << mean;
  }
}

// What is infinite or not a number stays so, and a first term that is far from all others spoils nothing.
TEST(Moments, SpecialFirstTerms) {
  const Program op = parse_op(kVariance);
  const DimValues dims = {{"N", 9}, {"C", 4}, {"H", 300}};
  Arrays data = random_data(op, dims, 13);
  std::vector<double>& x = data.at("x").reals;
  x[0] = std::numeric_limits<double>::infinity();
  x[300] = std::numeric_limits<double>::quiet_NaN();
  x[600] = 1e6;
  for (size_t n = 0; n < 9; ++n) x[n * 1200 + 900] = -1000;
  const Arrays wanted = evaluate(op, data, dims), got = run_infer(compile(op, beyond_cache()), data, dims);
  for (const char* name : {"m", "v"})
    for (size_t c = 0; c < 4; ++c) {
      const double w = wanted.at(name).reals[c], g = got.at(name).reals[c];
      // The shift's own rounding: some millionths of the standard deviation, which a first term that is far off makes large.
      const double allowed = name == std::string("m") ? 4e-6 * std::sqrt(wanted.at("v").reals[c]) : 1e-5 * w;
      EXPECT_TRUE(std::isnan(w) ? std::isnan(g) : w == g || std::fabs(w - g) <= allowed) << name << c << " " << w << " " << g;
    }
}

}  // namespace
}  // namespace xhat::moments_test
