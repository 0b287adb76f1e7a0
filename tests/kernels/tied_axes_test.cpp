// Axes that are tied to others (KernelAxis::of): statistics of groups of channels, and what is made of them, in one kernel.
#include <gtest/gtest.h>

#include "ad/reverse/gradient.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::tied_axes_test {
namespace {

using namespace xhat::testing;

constexpr const char* kGroupNorm = R"(op f(x: f32[N,4*G,H,W], gamma: f32[4*G], beta: f32[4*G]) -> (y) {
  mu[n, g in 0..G] = mean(k in 0..4, h, w: x[n,4*g+k,h,w])
  var[n, g in 0..G] = mean(k in 0..4, h, w: (x[n,4*g+k,h,w] - mu[n,g])^2)
  y[n,c,h,w] = (x[n,c,h,w] - mu[n,c/4]) / sqrt(var[n,c/4] + 1e-5) * gamma[c] + beta[c]
})";
// The class of c first, then that of its groups; and values that are read by group and by channel.
constexpr const char* kSumsOfSums = R"(op f(x: f32[N,3*G,H]) -> (y, z) {
  s[n,c] = sum(h: x[n,c,h])
  t[n, g in 0..G] = sum(k in 0..3: s[n,3*g+k])
  y[n,c,h] = x[n,c,h] * t[n,c/3] - s[n,c]
  z[n, g in 0..G] = max(k in 0..3, h: x[n,3*g+k,h]) + t[n,g]
})";
// Another group than one's own: nothing is tied.
constexpr const char* kNeighbour = R"(op f(x: f32[N,4*G,H]) -> (y) {
  m[n, g in 0..G] = max(k in 0..4, h: x[n,4*g+k,h])
  y[n,c,h] = x[n,c,h] - m[n,G-1-c/4]
})";

bool tied(const KernelPlan& plan) {
  return std::ranges::any_of(plan.kernels, [](const Kernel& k) {
    return std::ranges::any_of(k.axes, [&](const KernelAxis& x) { return x.of >= 0 && std::ranges::find(k.shared, x.of) != k.shared.end(); });
  });
}

void expect_agreement(const std::string& text, const DimValues& dims, bool ties) {
  SCOPED_TRACE(text + dims_text(dims));
  const Program op = parse_op(text), derived = gradient(op);
  const Arrays data = random_data(derived, dims, 7), right = evaluate_on(derived, data, dims);
  for (int64_t tile_bytes : {256, 8192}) {
    CompileOptions options;
    options.machine.serial_bytes = 16;
    options.machine.stream_bytes = 16;  // all is beyond the last cache
    options.machine.tile_bytes = tile_bytes;
    options.machine.cache_bytes = 2048;
    options.machine.least_tiles = 2;
    Arrays one;
    for (int threads : {1, 2}) {
      options.threads = threads;
      const CompiledOp compiled = compile(op, options);
      const Arrays found = run_both(compiled, data, dims);
      if (threads == 1) {
        EXPECT_EQ(tied(compiled.plan(CompiledOp::Phase::forward, dims)), ties);
        EXPECT_EQ(difference(right, found, 1e-4), "");
        one = found;
      }
      for (const auto& [name, array] : one) EXPECT_EQ(found.at(name).reals, array.reals) << name << ", " << threads << " threads";
    }
  }
}

TEST(TiedAxes, GroupNorm) {
  for (auto [g, w] : {std::pair{3, 7}, {8, 5}}) expect_agreement(kGroupNorm, {{"N", 3}, {"G", g}, {"H", 4}, {"W", w}}, true);
  EXPECT_TRUE(tied(compile(parse_op(kGroupNorm)).plan(CompiledOp::Phase::backward, {{"N", 8}, {"G", 64}, {"H", 64}, {"W", 64}})));
  EXPECT_FALSE(tied(compile(parse_op(kGroupNorm)).plan(CompiledOp::Phase::forward, {{"N", 2}, {"G", 8}, {"H", 32}, {"W", 32}}))) << "in cache";
}

TEST(TiedAxes, SumsOfSums) { expect_agreement(kSumsOfSums, {{"N", 4}, {"G", 5}, {"H", 33}}, true); }

TEST(TiedAxes, NotToAnotherGroup) { expect_agreement(kNeighbour, {{"N", 4}, {"G", 5}, {"H", 33}}, false); }

}  // namespace
}  // namespace xhat::tied_axes_test
