// What is derived, planned and compiled once; what a step costs in memory; graphs of ten thousand nodes.
#include <chrono>
#include <thread>

#include "tests/lazy/lazy_helper.h"

namespace xhat::lazy::test::lazy_found_again_test {
namespace {

// Two layers, and one step of training them.
struct Model {
  Array w1 = some({6, 8}, 1), b1 = some({8}, 2), w2 = some({8, 3}, 3), b2 = some({3}, 4);

  Array step(const Array& x, const Array& wanted, float rate) const {
    const Array y = matmul(relu(matmul(x, w1) + b1), w2) + b2;
    const Array loss = mean(square(y - wanted));
    auto [g1, h1, g2, h2] = grad(loss, {w1, b1, w2, b2});
    realize(loss, g1, h1, g2, h2);
    w1 -= rate * g1;
    b1 -= rate * h1;
    w2 -= rate * g2;
    b2 -= rate * h2;
    realize(w1, b1, w2, b2);
    return loss;
  }
};

TEST(LazyFoundAgain, ATrainingLoopCompilesOnce) {
  const Model m;
  const Array x = some({16, 6}, 5), wanted = some({16, 3}, 6);
  const double first = m.step(x, wanted, 0.05f).item();
  const Spent later = spent([&] {
    for (int i = 0; i < 20; ++i) EXPECT_LT(m.step(x, wanted, 0.05f).item(), first);
  });
  EXPECT_EQ(later.compiles, 0);
  EXPECT_EQ(later.plans, 0);
  EXPECT_EQ(later.programs, 40);
}

TEST(LazyFoundAgain, AnotherBatchIsTheSameProgram) {
  const Model m;
  m.step(some({16, 6}, 5), some({16, 3}, 6), 0.05f);
  const Spent other = spent([&] {
    for (int64_t batch : {7, 32, 5}) m.step(some({batch, 6}, 5), some({batch, 3}, 6), 0.05f);
  });
  EXPECT_EQ(other.compiles, 0);
  EXPECT_EQ(other.plans, 3);  // of the loss; the update does not know the batch
}

TEST(LazyFoundAgain, ShapesThatFollowFromTheBatchAreTheSameProgramToo) {
  auto f = [](int64_t batch) {
    const Array x = some({batch, 2, 4, 4}, 1), w = some({3, 2, 3, 3}, 2);
    const Array y = pool(relu(conv(x, w, {.padding = {1}})), {2, 2}).reshape({batch, 12});
    const Array z = concat({softmax(y), y(all, range(0, 2))}, 1) + arange(14, f32);
    expect_values(sum(z(range(1, batch)), 1), Read(sum(z, 1)(range(1, batch)).realize()).values());
    return sum(z).item();
  };
  f(4);
  EXPECT_EQ(spent([&] { f(6); }).compiles, 0);
}

TEST(LazyFoundAgain, ANumberThatChangesBecomesAnArgument) {
  const Array x = some({8});
  auto f = [&](float rate) { return sum(x * rate + 1.f).item(); };
  f(0.5f);
  f(0.25f);
  const Spent later = spent([&] {
    for (int i = 3; i < 20; ++i) {
      const float rate = 1.f / static_cast<float>(i);
      double total = 0;
      for (float v : numbers(8)) total += v * rate + 1;
      EXPECT_NEAR(f(rate), total, 1e-4);
    }
  });
  EXPECT_EQ(later.compiles, 0);
}

TEST(LazyFoundAgain, TheSameOpAppliedAgain) {
  const Array x = some({8});
  auto f = [&] {
    const Program op = parse_op("op g(x: f32[N]) -> (y) { y[n] = 2*x[n] }");
    return [&x, op](float c) { return sum(apply(op, {x * c})).item(); };
  }();
  f(1);
  EXPECT_EQ(spent([&] { f(1); }).compiles, 0);
}

TEST(LazyFoundAgain, AnExpressionThatIsThereIsRead) {
  const Array a = some({16}, 1), b = some({16}, 2);
  const Array first = exp(a + b).realize();
  EXPECT_EQ(kernels({exp(a + b)}), 0);
  EXPECT_EQ(kernels({exp(a + b).reshape({4, 4})}), 0);
  const Array second = exp(a + b);
  second.assign(0.f).realize();
  EXPECT_NE(first.vector<float>()[0], 0);
  a += 1.f;
  const Array other = exp(a + b);
  EXPECT_EQ(kernels({other}), 1);  // a is another by now
  expect_values(
      other, loop({16}, [&](const std::vector<int64_t>& i) {
        return std::exp(static_cast<double>(numbers(16, 1)[static_cast<size_t>(i[0])]) + 1 + numbers(16, 2)[static_cast<size_t>(i[0])]);
      }));
}

TEST(LazyFoundAgain, WhatTheCallerWritesIsSeen) {
  float memory[2] = {1, 2};
  const Array x = array(TensorView(memory, {2}));
  const Array before = (x * 2.f).realize();
  memory[0] = 10;
  expect_values(x * 2.f, {20, 4});
  expect_values(before, {2, 4});
  const Array y = (before + 1.f).realize(), other = (before + 1.f).realize();
  static_cast<float*>(y.view().data)[0] = -1;
  static_cast<float*>(other.view().data)[0] = -2;
  expect_values(y, {-1, 5});
  expect_values(before + 1.f, {3, 5});
}

TEST(LazyFoundAgain, MemoryDoesNotGrow) {
  const Model m;
  const Array x = some({16, 6}, 5), wanted = some({16, 3}, 6);
  for (int i = 0; i < 20; ++i) m.step(x, wanted, 0.01f);
  const int64_t bytes = counts().bytes, nodes = counts().nodes;
  for (int i = 0; i < 10000; ++i) m.step(x, wanted, 0.001f);
  EXPECT_EQ(counts().bytes, bytes);
  EXPECT_EQ(counts().nodes, nodes);
  // A state that is carried along keeps a few of its past values, not all.
  Array state = array({1.f, 2.f});
  for (int i = 0; i < 20; ++i) state = (state * 0.5f + 1.f).realize();
  const int64_t held = counts().nodes;
  for (int i = 0; i < 1000; ++i) state = (state * 0.5f + 1.f).realize();
  EXPECT_NEAR(static_cast<double>(counts().nodes), static_cast<double>(held), 100);
}

TEST(LazyFoundAgain, ThingsOnlyComputedWhenAsked) {
  const int64_t bytes = counts().bytes;
  const Spent nothing = spent([&] {
    const Array x = zeros({1000, 1000}) + arange(1000, f32);
    const Array y = sum(exp(cast(x, f32)), 1).contiguous();
    auto [g] = grad(sum(y), {y});
    EXPECT_FALSE(y.is_realized());
    EXPECT_NE(y.describe().find("lazy: 1 kernel"), std::string::npos) << y;
  });
  EXPECT_EQ(nothing.kernels + nothing.copies, 0);
  EXPECT_EQ(counts().bytes, bytes);
}

TEST(LazyScale, TenThousandNodesArePlannedInLessThanASecond) {
  const Array x = some({100});
  auto chain = [&](int nodes) {
    Array y = x;
    for (int i = 0; i < nodes / 2; ++i) y = y * 0.999f + 0.001f;
    return y;
  };
  auto seconds = [&](int nodes) {
    const Array y = chain(nodes);
    const auto start = std::chrono::steady_clock::now();
    y.describe();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  EXPECT_LT(seconds(10000), 1);
  double wanted = x.vector<double>()[0];
  for (int i = 0; i < 5000; ++i) wanted = wanted * 0.999 + 0.001;
  EXPECT_NEAR(chain(10000).vector<double>()[0], wanted, 1e-3);
  seconds(100000);  // neither planning nor releasing it is a chain of as many calls
}

TEST(LazyScale, ALargeGraphWithDerivatives) {
  const Array x = cast(some({4, 4}, 1), f64), w = cast(some({4, 4}, 2), f64) * 0.3;
  w.realize();
  auto f = [&](const Array& v) {
    Array y = x;
    for (int i = 0; i < 8; ++i) y = tanh(matmul(y, v) + y * 0.5);
    for (int i = 0; i < 200; ++i) y = y * 1.01 + 0.001;
    return sum(y);
  };
  auto [g] = grad(f(w), {w});
  const Array update = w - 0.1 * g;
  update.realize();
  EXPECT_TRUE(all(isfinite(update)).item<bool>());
}

TEST(LazyThreads, EachBuildsAndRealizesItsOwn) {
  std::vector<std::thread> threads;
  std::vector<double> results(4);
  for (size_t t = 0; t < results.size(); ++t)
    threads.emplace_back([&results, t] {
      for (int i = 0; i < 20; ++i) {
        const Array x = array({1.f, 2.f}), y = x * static_cast<float>(t);
        x += 1.f;
        results[t] = sum(y + x).item();
      }
    });
  for (std::thread& t : threads) t.join();
  for (size_t t = 0; t < results.size(); ++t) EXPECT_EQ(results[t], 3.0 * static_cast<double>(t) + 5);
}

}  // namespace
}  // namespace xhat::lazy::test::lazy_found_again_test
