// Gradients through programs whose loops stay: the loop is undone by itself, what stands before and behind it is derived as ever.
#include "tests/lazy/lazy_helper.h"

namespace xhat::lazy::test::lazy_loops_test {
namespace {

Array weighted(const Array& y) { return sum(y * cast(some(y.shape(), 99), y.dtype())); }

const Program& waves() {
  static const Program op =
      parse_op("prog f(x: f64[N]) -> (y) { var s = zeros f64[N]\n for t in 0..20 { s[i] = sin(s[i]) * 0.5 + x[i] }\n y[i] = s[i] }");
  return op;
}
// Two results, of which one is of integers, and three parameters, of which two have gradients.
const Program& cell() {
  static const Program op = parse_op(R"(
    prog cell(x: f64[T,N], w: f64[N,N], k: i64) -> (h, all, count) {
      var h = zeros f64[N]
      var all = zeros f64[T,N]
      var count = i64(0)
      for t in 0..T {
        z[i] = sum(j: w[i,j] * h[j]) + x[t,i]
        h = tanh(z)
        all[t] = h * 2
        if h[0] > 0 { count += k }
      }
    })");
  return op;
}
// A branch that stays.
const Program& until() {
  static const Program op = parse_op(R"(
    prog until(x: f64[N], most: f64) -> (y) {
      var y = clone(x)
      while sum(i: y[i]^2) > most max 30 { y = 0.8*y + 0.05*sin(y) }
    })");
  return op;
}

TEST(LazyLoops, AGradientGoesThroughALoopThatStays) {
  expect_gradient([](const Array& x) { return weighted(apply(waves(), {x})); }, {5});
  expect_gradient([](const Array& x) { return weighted(square(apply(waves(), {x * x + 0.5}))); }, {5});
}

TEST(LazyLoops, ThroughSomeOfTheResultsByPartsOfMemoryOrAll) {
  const Array k = array(int64_t{3});
  const Array w = cast(some({3, 3}, 7), f64) * 0.4;
  expect_gradient([&](const Array& x) { return weighted(apply_all(cell(), {x, w, k})[0]); }, {6, 3});
  expect_gradient([&](const Array& x) { return weighted(apply_all(cell(), {x, w, k})[1](range(2, 5), all)); }, {6, 3});
  expect_gradient(
      [&](const Array& x) {
        auto r = apply_all(cell(), {transpose(x)(range(1, 5), all), w + reshape(reshape(x, {18})(range(0, 9)), {3, 3}), k});
        return weighted(r[0]) + sum(r[1]) * 0.1;
      },
      {3, 6});
}

TEST(LazyLoops, OneLoopBehindAnother) {
  const Array k = array(int64_t{1});
  expect_gradient(
      [&](const Array& w) {
        Array x = cast(some({4, 3}, 3), f64);
        for (int layer = 0; layer < 3; ++layer) x = apply_all(cell(), {x + sum(w) * 0.01, w * (0.5 + layer), k})[1];
        return weighted(x) + sum(apply(until(), {reshape(w, {9}), array(0.3)}));
      },
      {3, 3});
}

TEST(LazyLoops, TenLayersInOneRealize) {
  const Array x = cast(some({4}, 9), f64);
  expect_gradient(
      [&](const Array& w) {
        Array h = x;
        for (int layer = 0; layer < 10; ++layer) h = apply(waves(), {h * w});
        return weighted(h);
      },
      {4});
}

// The loss first, then its gradient: the run is not repeated.
TEST(LazyLoops, WhatTheLoopKeptIsUsed) {
  const Array w = cast(some({3, 3}, 7), f64), k = array(int64_t{1}), x = cast(some({6, 3}, 3), f64);
  realize(w, x);
  auto loss_of = [&] { return sum(square(apply_all(cell(), {tanh(x), w * 0.5, k})[1])); };
  // How many programs run for the gradient, once the loss is there. Each time on its own: values that are alive would be found again.
  std::vector<double> wanted;
  auto runs = [&](bool known) {
    const Array loss = loss_of();
    std::vector<Array> g;
    if (known) g = grad(loss, std::vector<Array>{w});
    loss.realize();
    if (!known) g = grad(loss, std::vector<Array>{w});
    const int64_t before = counts().realizes;
    const std::vector<double> values = g[0].vector<double>();
    if (wanted.empty()) wanted = values;
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], wanted[i], 1e-12);
    return counts().realizes - before;
  };
  EXPECT_EQ(runs(false), runs(true) + 1);  // the forward of the loop once more
}

TEST(LazyLoops, StepsOfTraining) {
  const Array k = array(int64_t{1}), x = cast(some({6, 3}, 3), f64), t = cast(some({6, 3}, 4), f64) * 0.5;
  Array w = array(std::vector<double>(9, 0.1), {3, 3});
  std::vector<double> losses;
  int64_t compiles = 0;
  for (int step = 0; step < 12; ++step) {
    const Array loss = mean(square(apply_all(cell(), {x, w, k})[1] - t));
    w -= 0.3 * grad(loss, {w})[0];
    realize(loss, w);
    losses.push_back(loss.item());
    if (step == 2) compiles = counts().compiles;
  }
  EXPECT_LT(losses.back(), 0.8 * losses.front());
  EXPECT_EQ(counts().compiles, compiles);
}

// w is written over before the gradient of what it was is computed.
TEST(LazyLoops, WhatWasWrittenOverIsKept) {
  Array w = array({0.5, -0.25, 0.75});
  w.realize();
  const Array loss = sum(square(apply(waves(), {w})));
  const Array g = grad(loss, {w})[0];
  loss.realize();
  w.assign(w * 0.0);
  w.realize();
  const Array v = array({0.5, -0.25, 0.75});
  expect_values(g, grad(sum(square(apply(waves(), {v}))), {v})[0].vector<double>(), 1e-12);
}

TEST(LazyLoops, OneThatNothingDependsOnAndOneByAValueBetween) {
  const Array x = array({1.0, 2.0}), z = array({0.5, 0.25});
  const Array h = x * 3.0, y = apply(waves(), {h}), loss = sum(y * z);
  auto [gh, gz, gx, gy] = grad(loss, {h, z, x, y});
  expect_values(gz, y.vector<double>(), 1e-12);
  expect_values(gy, z.vector<double>(), 1e-12);
  const std::vector<double> by_h = gh.vector<double>();
  expect_values(gx, {3 * by_h[0], 3 * by_h[1]}, 1e-12);
  expect_values(grad(sum(z * y.detach()), {x})[0], {0.0, 0.0}, 0);
}

TEST(LazyLoops, SecondDerivativesAreRefused) {
  const Array x = array({1.0, 2.0}), y = apply(waves(), {x});
  const Array g = grad(sum(square(y)), {x})[0];
  try {
    grad(sum(square(g)), {x})[0].realize();
    FAIL() << "that has no gradient";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("second derivatives through f, a program whose loops or branches stay"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace xhat::lazy::test::lazy_loops_test
