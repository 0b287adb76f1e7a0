// Derivatives that are asked for after values were realized: what their programs kept is used, and the numbers are those of one program.
#include "tests/lazy/lazy_helper.h"

#include <random>

namespace xhat::lazy::test::lazy_stash_test {
namespace {

constexpr int64_t kRows = 64, kWidth = 96;
constexpr int64_t kHidden = kRows * kWidth * 4;  // bytes of a hidden layer

struct Net {
  Array x = some({kRows, kWidth}, 1), w = some({kWidth, kWidth}, 2) * 0.1f, u = some({kWidth, 3}, 3);
  int depth;  // another one in each test: what was learned of a structure is known to all

  explicit Net(int d) : depth(d) { realize(x, w, u); }
  Array hidden() const {
    Array h = matmul(x, w);
    for (int i = 0; i < depth; ++i) h = tanh(h);
    return h;
  }
  static Array loss(const Array& h, const Array& u) { return mean(square(matmul(h, u))); }
  Array loss() const { return loss(hidden(), u); }
};

std::vector<Array> derivatives(const Array& loss, const std::vector<Array>& wrt) { return grad(loss, wrt); }

std::vector<std::vector<double>> values_of(const std::vector<Array>& arrays) {
  std::vector<std::vector<double>> values;
  for (const Array& a : arrays) values.push_back(a.vector<double>());
  return values;
}

void expect_same(const std::vector<Array>& arrays, const std::vector<std::vector<double>>& wanted, double tolerance = 1e-5) {
  for (size_t i = 0; i < arrays.size(); ++i) expect_values(arrays[i], wanted[i], tolerance);
}

// Memory of values that f leaves behind.
int64_t bytes_made(const std::function<void()>& f) {
  const int64_t before = counts().bytes;
  f();
  return counts().bytes - before;
}

TEST(LazyStash, ALossKeepsWhatALivingDerivativeNeeds) {
  const Net net(1);
  const std::vector<Array> together = derivatives(net.loss(), {net.w, net.u});
  const auto wanted = values_of(together);

  const Array loss = net.loss();
  const std::vector<Array> gradients = derivatives(loss, {net.w, net.u});
  EXPECT_GE(bytes_made([&] { loss.realize(); }), kHidden);
  expect_same(gradients, wanted);
}

TEST(LazyStash, WhatNobodyDerivesKeepsNothing) {
  const Net net(2);
  const Array loss = net.loss();
  EXPECT_LT(bytes_made([&] { loss.realize(); }), kHidden);
}

TEST(LazyStash, WhatWasAskedForAfterwardsIsKeptTheNextTime) {
  const Net net(3);
  std::vector<std::vector<double>> wanted;
  for (int step = 0; step < 3; ++step) {
    const Array loss = net.loss();
    const int64_t made = bytes_made([&] { loss.realize(); });
    if (step == 0)
      EXPECT_LT(made, kHidden);
    else
      EXPECT_GE(made, kHidden);
    const std::vector<Array> gradients = derivatives(loss, {net.w, net.u});
    realize(gradients);
    if (step == 0) wanted = values_of(gradients);
    expect_same(gradients, wanted);
  }
  // It is given up where it is not used any more, and the program that keeps nothing is found again.
  for (int step = 0; step < 8; ++step) net.loss().realize();
  const Array loss = net.loss();
  EXPECT_LT(bytes_made([&] { loss.realize(); }), kHidden);
}

TEST(LazyStash, OfAValueInTheMiddle) {
  const Net net(4);
  const std::vector<Array> together = derivatives(net.loss(), {net.w, net.u});
  const auto wanted = values_of(together);

  const Array h = net.hidden(), loss = Net::loss(h, net.u);
  const std::vector<Array> gradients = derivatives(loss, {net.w, net.u});
  h.realize();
  const Spent later = spent([&] { realize(std::vector<Array>{loss, gradients[0], gradients[1]}); });
  EXPECT_EQ(later.programs, 1);
  expect_same(gradients, wanted);
}

TEST(LazyStash, TheForwardIsNotComputedAgain) {
  const Net net(5);
  options().compile.fusion.policy = FusePolicy::off;  // a kernel per definition
  std::vector<int64_t> kernels_of_gradient;
  for (int step = 0; step < 2; ++step) {
    const Array loss = net.loss().realize();
    kernels_of_gradient.push_back(kernels(derivatives(loss, {net.w})));
  }
  options().compile.fusion.policy = FusePolicy::full;
  EXPECT_LT(kernels_of_gradient[1], kernels_of_gradient[0]);
}

TEST(LazyStash, AStepInTwoHalvesCompilesOnceAndGrowsNothing) {
  Net net(6);
  auto step = [&] {
    const Array loss = net.loss();
    loss.realize();
    const std::vector<Array> gradients = derivatives(loss, {net.w, net.u});
    net.w -= 0.01f * gradients[0];
    net.u -= 0.01f * gradients[1];
    realize(net.w, net.u);
  };
  for (int i = 0; i < 3; ++i) step();
  const int64_t bytes = counts().bytes, nodes = counts().nodes;
  const Spent more = spent([&] {
    for (int i = 0; i < 20; ++i) step();
  });
  EXPECT_EQ(more.compiles, 0);
  EXPECT_EQ(more.plans, 0);
  EXPECT_EQ(more.programs, 40);
  EXPECT_EQ(counts().bytes, bytes);
  EXPECT_EQ(counts().nodes, nodes);
}

TEST(LazyStash, WhatIsAssignedMeanwhileIsNotRead) {
  const Net net(7);
  const std::vector<Array> together = derivatives(net.loss(), {net.w});
  const auto wanted = values_of(together);
  for (int step = 0; step < 3; ++step) {
    const Array u = (net.u * 2.0f * 0.5f).realize(), h = net.hidden(), loss = Net::loss(h, u).realize();
    const std::vector<Array> early = derivatives(loss, {net.w});
    u.assign(u * 2.0f + 1.0f).realize();
    expect_same(early, wanted);  // was asked for before the assignment: what it needs was copied then
  }
  for (int step = 0; step < 3; ++step) {
    const Array u = (net.u * 2.0f * 0.5f).realize(), loss = Net::loss(net.hidden(), u).realize();
    u.view();  // an address that somebody knows is written over, and nobody had asked for the derivative
    u *= 2.0f;
    u.realize();
    EXPECT_THROW(realize(derivatives(loss, {net.w})), Error);
  }
}

// Parameters that lie in one piece of memory, and biases in another shape.
TEST(LazyStash, ByMemoryThatIsReadInSlicesAndOtherShapes) {
  const Array packed = some({3 * 4 + 4 + 5}, 1).realize(), x = some({6, 3}, 2).realize();
  auto hidden = [&](float scale) {
    const Array w = packed(range(0, 12)).reshape({3, 4}), b = packed(range(12, 16)).reshape({1, 4});
    return tanh(matmul(x, w) * scale + b);
  };
  auto loss_of = [&](const Array& h) { return sum(square(h)) + sum(packed(range(14, 21)) * 0.5f); };
  const auto wanted = values_of(derivatives(loss_of(hidden(1.0f)), {packed}));
  for (int step = 0; step < 3; ++step)
    for (bool ask_first : {false, true}) {
      const Array h = hidden(1.0f), loss = loss_of(h);
      std::vector<Array> found;
      if (ask_first) found = derivatives(loss, {packed});
      const int64_t made = bytes_made([&] { h.realize(); });
      EXPECT_GE(made, 6 * 4 * 4);
      if (!ask_first) found = derivatives(loss, {packed});
      expect_same(found, wanted);
    }
  // Of a loss that is a number: the second time its program keeps the hidden layers.
  std::vector<int64_t> made;
  for (int step = 0; step < 2; ++step) {
    const Array loss = mean(square(tanh(hidden(1.0f))));
    made.push_back(bytes_made([&] { loss.realize(); }));
    derivatives(loss, {packed})[0].realize();
  }
  EXPECT_GE(made[1], made[0] + 6 * 4 * 4);
}

TEST(LazyStash, SecondDerivativesLookThroughIt) {
  const Array x = array({0.5, -1.0, 2.0});
  for (int step = 0; step < 3; ++step) {
    const Array y = exp(x * 0.5) * x;
    const Array loss = sum(square(y));
    auto [first] = grad(loss, {x});
    y.realize();
    loss.realize();
    first.realize();
    auto [second] = grad(sum(first), {x});
    // loss = x^2 e^x
    expect_values(first, loop({3}, [&](const std::vector<int64_t>& i) {
                    const double v = std::vector{0.5, -1.0, 2.0}[static_cast<size_t>(i[0])];
                    return (v * v + 2 * v) * std::exp(v);
                  }));
    expect_values(second, loop({3}, [&](const std::vector<int64_t>& i) {
                    const double v = std::vector{0.5, -1.0, 2.0}[static_cast<size_t>(i[0])];
                    return (v * v + 4 * v + 2) * std::exp(v);
                  }));
  }
}

// Random graphs over three parameters, of which random values are realized on the way.
class RandomGraph {
 public:
  explicit RandomGraph(uint32_t seed) : seed_(seed) {
    for (uint32_t i = 0; i < 3; ++i) parameters_.push_back(cast(some({4, 5}, seed + i), f64).realize());
  }

  // every: how often a value is realized; 0: never.
  std::vector<std::vector<double>> gradients(uint32_t every, bool ask_first) {
    std::mt19937 random(seed_), when(seed_ * 31 + every);
    std::vector<Array> values = parameters_;
    auto any = [&] { return values[random() % values.size()]; };
    for (int i = 0; i < 8; ++i) {
      const Array a = any(), b = any();
      Array made;
      switch (random() % 6) {
        case 0: made = tanh(a + 0.5 * b); break;
        case 1: made = a * b; break;
        case 2: made = sigmoid(a) - b; break;
        case 3: made = a * mean(b, 1, keepdim); break;
        case 4: made = softmax(a) + b * 0.25; break;
        default: made = matmul(matmul(a, transpose(b)), any()) * 0.2; break;
      }
      values.push_back(made);
    }
    Array loss = values.back() * 1.0;
    for (size_t i = values.size() - 3; i < values.size(); ++i) loss = loss + values[i];
    loss = mean(square(loss));
    std::vector<Array> wrt = parameters_;
    const uint32_t inner = seed_ % 3;
    if (inner == 0) wrt.push_back(values[4]);
    std::vector<Array> found;
    if (ask_first) found = grad(loss, wrt);
    if (every) {
      for (size_t i = 3; i < values.size(); ++i)
        if (when() % every == 0) values[i].realize();
      if (when() % 2) loss.realize();
    }
    if (!ask_first) found = grad(loss, wrt);
    realize(found);
    return values_of(found);
  }

 private:
  uint32_t seed_;
  std::vector<Array> parameters_;
};

TEST(LazyStash, RandomGraphsWithValuesRealizedOnTheWay) {
  const char* count = std::getenv("XHAT_LAZY_RANDOM");
  const uint32_t graphs = count ? static_cast<uint32_t>(std::atoi(count)) : 3;
  for (uint32_t seed = 1; seed <= graphs; ++seed) {
    RandomGraph g(seed * 17);
    const auto wanted = g.gradients(0, true);
    for (uint32_t every = 1 + seed % 2; every <= 3; every += 2)
      for (int again = 0; again < 3; ++again) {
        const auto got = g.gradients(every, seed % 2 == 0);
        ASSERT_EQ(got.size(), wanted.size());
        for (size_t k = 0; k < got.size(); ++k)
          for (size_t i = 0; i < got[k].size(); ++i)
            ASSERT_NEAR(got[k][i], wanted[k][i], 1e-9 * (1 + std::fabs(wanted[k][i])))
                << "seed " << seed << ", every " << every << ", gradient " << k << ", element " << i << ", time " << again;
      }
  }
}

}  // namespace
}  // namespace xhat::lazy::test::lazy_stash_test
