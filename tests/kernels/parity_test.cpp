// Functions that ops.def calls odd or even are so to the bit, in the evaluator and in vector and scalar code of kernels: cos(x[j] - x[i]) may
// stand for cos(x[i] - x[j]).
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "expr/core/scalar.h"
#include "tests/kernels/vector_math_reference.h"

namespace xhat::parity_test {
namespace {

using vmath_test::bits;
using vmath_test::Compiled;

// Numbers of all sizes by their bits, numbers of everyday sizes, and the special ones.
template <class T>
std::vector<T> numbers(uint64_t seed) {
  using Word = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  std::mt19937_64 random(seed);
  std::vector<T> all = {T(0), T(-0.0), T(1), T(-0.5), std::numeric_limits<T>::infinity(), std::numeric_limits<T>::denorm_min()};
  for (int i = 0; i < 40000; ++i) all.push_back(std::bit_cast<T>(static_cast<Word>(random())));
  for (double reach : {1.0, 10.0, 1e3, 1e6})
    for (int i = 0; i < 20000; ++i) all.push_back(T(reach * (double(random() >> 11) * 0x1p-52 - 1)));
  return all;
}

template <class T>
std::vector<T> negatives(std::vector<T> x) {
  for (T& v : x) v = -v;
  return x;
}

template <class T>
bool fits(Parity parity, T at_x, T at_negative) {
  if (std::isnan(at_x)) return std::isnan(at_negative);
  return bits(at_negative) == bits(parity == Parity::odd ? -at_x : at_x);
}

template <class T>
void expect_parity(const OpInfo& of) {
  const vmath::Row* row = vmath::find_row(of.id.data());
  if (!row) return;
  std::vector<std::vector<T>> x, negative;
  for (int k = 0; k < of.arity; ++k) x.push_back(numbers<T>(static_cast<uint64_t>(k))), negative.push_back(negatives(x.back()));
  for (bool vectors : {true, false}) {
    const Compiled<T>& kernel = Compiled<T>::of(*row, vectors);
    const std::vector<T> at_x = kernel(x, 0, x[0].size());
    for (size_t turned = 0; turned < x.size(); ++turned) {
      std::vector<std::vector<T>> other = x;
      other[turned] = negative[turned];
      const std::vector<T> at_negative = kernel(other, 0, x[0].size());
      size_t wrong = 0, where = 0;
      for (size_t i = 0; i < at_x.size(); ++i)
        if (!fits(of.parity, at_x[i], at_negative[i])) ++wrong, where = i;
      EXPECT_EQ(wrong, 0u) << of.id << (vectors ? " of vectors" : " of scalars") << " in f" << 8 * sizeof(T) << ", operand " << turned
                           << ", at " << double(x[0][where]) << ": " << double(at_x[where]) << ", " << double(at_negative[where]);
    }
  }
}

TEST(Parity, IsExactInKernels) {
  int tried = 0;
  for (int i = 0; i < kOpCount; ++i) {
    const OpInfo& of = info(static_cast<Op>(i));
    if (of.parity == Parity::none || of.syntax != Syntax::function) continue;
    expect_parity<float>(of);
    expect_parity<double>(of);
    ++tried;
  }
  EXPECT_GE(tried, 20);
}

TEST(Parity, IsExactInTheEvaluator) {
  for (int i = 0; i < kOpCount; ++i) {
    const OpInfo& of = info(static_cast<Op>(i));
    if (of.parity == Parity::none) continue;
    const ScalarOp& row = scalar(static_cast<Op>(i));
    const std::vector<double> x = numbers<double>(0), y = numbers<double>(1);
    size_t wrong = 0;
    for (size_t k = 0; k < x.size(); ++k)
      for (int turned = 0; turned < of.arity; ++turned) {
        const double at_x[2] = {x[k], y[k]}, at_negative[2] = {turned == 0 ? -x[k] : x[k], turned == 1 ? -y[k] : y[k]};
        if (row.reals)
          wrong += !fits(of.parity, row.reals.at(at_x), row.reals.at(at_negative));
        else
          wrong += row.tests.at(at_x) != row.tests.at(at_negative);
      }
    EXPECT_EQ(wrong, 0u) << of.id;
  }
}

}  // namespace
}  // namespace xhat::parity_test
