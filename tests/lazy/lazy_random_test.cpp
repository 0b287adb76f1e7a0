// Random programs of arrays, computed at the end and after every step: both must agree, whatever was fused, folded or exchanged.
#include <random>

#include "tests/lazy/lazy_helper.h"

namespace xhat::lazy::test::lazy_random_test {
namespace {

class RandomProgram {
 public:
  RandomProgram(uint32_t seed, bool eager) : random_(seed), eager_(eager) {}

  std::vector<double> run(int steps) {
    for (uint32_t i = 0; i < 3; ++i) arrays_.push_back(some({2 + pick(2), 3, 2 + pick(3)}, i + 1));
    for (int i = 0; i < steps; ++i) step();
    std::vector<double> all_values;
    realize(arrays_);
    for (const Array& x : arrays_)
      for (double v : x.vector<double>()) all_values.push_back(v);
    return all_values;
  }

 private:
  int64_t pick(int64_t below) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(below)); }
  const Array& any_of_them() { return arrays_[static_cast<size_t>(pick(static_cast<int64_t>(arrays_.size())))]; }
  int axis_of(const Array& x) { return static_cast<int>(pick(x.rank())); }

  void step() {
    const Array x = any_of_them(), y = any_of_them();
    Array made;
    switch (pick(17)) {
      case 0: made = tanh(x) * 0.5f; break;
      case 1: made = x - max(x, axis_of(x), keepdim); break;
      case 2: made = sum(x, axis_of(x), keepdim) * 0.25f + x; break;
      case 3: made = transpose(x, 0, -1); break;
      case 4: made = reshape(x, {-1, x.size(0), 1}); break;
      case 5: made = flip(x, axis_of(x)); break;
      case 6: made = pad(x, {{1, 0}, {0, 1}}, 0.5f); break;
      case 7: made = x.elements() < 200 ? concat({x, x * 2.f}, axis_of(x)) : x + 1.f; break;
      case 8: made = where(x > 0.1f, x, -x); break;
      case 9: made = softmax(x, axis_of(x)); break;
      case 10: made = x.shape() == y.shape() ? x * y : x * sum(y) * 0.1f; break;
      case 11: made = x(range(0, x.size(0), 2)); break;
      case 12: made = take(x, array({0, 1, 0}) % static_cast<int>(x.size(1)), 1); break;
      case 13: x.assign(x * 0.5f + mean(y)); break;
      case 14: x(pick(x.size(0))).assign(mean(x)); break;
      case 15: flip(x, 1)(all, range(0, 1)) += 0.25f; break;
      default:
        made = grad(sum(square(x) * sigmoid(x)), {x})[0] + stride(x, std::vector<int64_t>(static_cast<size_t>(x.rank()), 1)).contiguous();
    }
    if (!made.state()) {
      if (eager_) x.realize();
      return;
    }
    if (made.rank() != 3) made = reshape(made, {made.elements(), 1, 1});
    if (eager_) made.realize();
    if (arrays_.size() < 6)
      arrays_.push_back(made);
    else
      arrays_[static_cast<size_t>(pick(6))] = made;
  }

  std::mt19937 random_;
  bool eager_;
  std::vector<Array> arrays_;
};

TEST(LazyRandomPrograms, AtTheEndAndStepByStep) {
  const char* count = std::getenv("XHAT_LAZY_RANDOM");
  const uint32_t programs = count ? static_cast<uint32_t>(std::atoi(count)) : 4;
  for (uint32_t seed = 1; seed <= programs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::vector<double> late = RandomProgram(seed, false).run(14), early = RandomProgram(seed, true).run(14);
    ASSERT_EQ(late.size(), early.size());
    for (size_t i = 0; i < late.size(); ++i) ASSERT_NEAR(late[i], early[i], 1e-4 * (1 + std::fabs(early[i]))) << "value " << i;
  }
}

}  // namespace
}  // namespace xhat::lazy::test::lazy_random_test
