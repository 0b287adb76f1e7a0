// What the tests of lazy arrays share: values against plain loops, derivatives against finite differences, and counts.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "xhat/lazy.h"

namespace xhat::lazy::test {

// Numbers without a pattern, the same in every run, in (-1, 1).
inline std::vector<float> numbers(int64_t count, uint32_t seed = 1) {
  std::vector<float> v(static_cast<size_t>(count));
  uint32_t state = seed * 2654435761u + 12345;
  for (float& x : v) {
    state = state * 1664525u + 1013904223u;
    x = static_cast<float>(state >> 8) / 8388608.f - 1.f;
  }
  return v;
}

inline Array some(const Shape& shape, uint32_t seed = 1) { return array(numbers(shape.elements(), seed), shape); }

inline void expect_values(const Array& x, const std::vector<double>& wanted, double tolerance = 1e-5) {
  const std::vector<double> got = x.vector<double>();
  ASSERT_EQ(got.size(), wanted.size()) << x;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(wanted[i]))
      EXPECT_TRUE(std::isnan(got[i])) << "element " << i;
    else
      EXPECT_NEAR(got[i], wanted[i], tolerance * (1 + std::fabs(wanted[i]))) << "element " << i << " of " << x;
  }
}

// f(position) at every position of the shape, in row-major order.
inline std::vector<double> loop(const Shape& shape, const std::function<double(const std::vector<int64_t>&)>& f) {
  std::vector<double> values;
  std::vector<int64_t> at(shape.size(), 0);
  for (int64_t n = shape.elements(); n > 0; --n) {
    values.push_back(f(at));
    for (size_t d = shape.size(); d-- > 0;) {
      if (++at[d] < shape[d]) break;
      at[d] = 0;
    }
  }
  return values;
}

// Elements of x by position.
class Read {
 public:
  explicit Read(const Array& x) : shape_(x.shape()), values_(x.vector<double>()) {}
  template <class... I>
  double operator()(I... indices) const {
    size_t at = 0, d = 0;
    ((at = at * static_cast<size_t>(shape_[d++]) + static_cast<size_t>(indices)), ...);
    return values_.at(at);
  }
  double operator[](size_t i) const { return values_.at(i); }
  const std::vector<double>& values() const { return values_; }

 private:
  Shape shape_;
  std::vector<double> values_;
};

struct Spent {
  int64_t programs, kernels, copies, compiles, plans;
};
// What f made the engine do.
inline Spent spent(const std::function<void()>& f) {
  const Counts before = counts();
  f();
  const Counts after = counts();
  return {after.realizes - before.realizes, after.kernels - before.kernels, after.copies - before.copies, after.compiles - before.compiles,
          after.plans - before.plans};
}
inline int64_t kernels(const std::function<void()>& f) {
  const Spent s = spent(f);
  return s.kernels + s.copies;
}
inline int64_t kernels(const std::vector<Array>& arrays) {
  return kernels([&] { realize(arrays); });
}

// Derivatives of f at x (f64) against differences of f.
inline void expect_gradient(const std::function<Array(const Array&)>& f, const Shape& shape, uint32_t seed = 7, double tolerance = 1e-6) {
  const std::vector<float> start = numbers(shape.elements(), seed);
  std::vector<double> at(start.begin(), start.end());
  const Array x = array(TensorView(at.data(), std::span<const int64_t>(shape)));
  auto value = [&] { return f(x).item(); };
  auto [g] = grad(f(x), {x});
  const std::vector<double> got = g.vector<double>();
  for (size_t i = 0; i < at.size(); ++i) {
    const double step = 1e-5, was = at[i];
    at[i] = was + step;
    const double up = value();
    at[i] = was - step;
    const double down = value();
    at[i] = was;
    EXPECT_NEAR(got[i], (up - down) / (2 * step), tolerance * (1 + std::fabs(got[i]))) << "element " << i;
  }
}

}  // namespace xhat::lazy::test
