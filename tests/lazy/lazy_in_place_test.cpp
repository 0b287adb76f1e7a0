// Assignments: in place, seen by views, and not seen by what was made from the old value.
#include "tests/lazy/lazy_helper.h"

namespace xhat::lazy::test::lazy_in_place_test {
namespace {

TEST(LazyInPlace, TheCallersMemoryIsWritten) {
  float memory[4] = {1, 2, 3, 4};
  const Array x = array(TensorView(memory, {2, 2})), v = x(1);
  x.assign(x * 10.f);
  EXPECT_EQ(memory[0], 1);  // nothing ran
  x.realize();
  EXPECT_EQ(memory[3], 40);
  expect_values(v, {30, 40});
  v.assign(array({5.f, 6.f}));
  expect_values(x, {10, 20, 5, 6});
  EXPECT_EQ(memory[2], 5);
}

TEST(LazyInPlace, TenTimesIsOneKernelOnTheSameMemory) {
  const Array x = array({0.f});
  const void* before = x.view().data;
  for (int i = 0; i < 10; ++i) x += 1.f;
  EXPECT_EQ(kernels({x}), 1);
  EXPECT_EQ(x.item(), 10);
  EXPECT_EQ(x.view().data, before);
}

TEST(LazyInPlace, WhatWasReadBeforeKeepsTheOldValue) {
  const Array x = array({0.f});
  const Array y0 = x + 0.f;
  x += 1.f;
  const Array y1 = x + 0.f;
  x += 1.f;
  realize(y0, y1, x);
  EXPECT_EQ(y0.item(), 0);
  EXPECT_EQ(y1.item(), 1);
  EXPECT_EQ(x.item(), 2);

  const Array a = array({1.f, 2.f});
  const Array old = a * 2.f;
  a.assign(a + 100.f);
  a.realize();
  expect_values(a, {101, 102});
  expect_values(old, {2, 4});  // computed only now
}

TEST(LazyInPlace, Fifteen) {
  const Array x = array({1.f}), y = array({2.f});
  const Array e = x + 10.f;
  x *= 2.f;
  y += x;
  const Array z = y + e;
  EXPECT_EQ(z.item(), 15);
  EXPECT_EQ(x.item(), 2);
  EXPECT_EQ(y.item(), 4);
}

TEST(LazyInPlace, HalvesAreSwapped) {
  const Array x = array({1.f, 2.f, 3.f, 4.f});
  const Array first = x(range(0, 2)), second = x(range(2, 4));
  const Array kept = first + 0.f;
  first.assign(second);
  second.assign(kept);
  x.realize();
  expect_values(x, {3, 4, 1, 2});
  expect_values(kept, {1, 2});
}

TEST(LazyInPlace, OverlappingParts) {
  const Array x = arange(0, 8, 1, f32).realize(), y = arange(0, 8, 1, f32).realize();
  x(range(0, 6)).assign(x(range(2, 8)));
  y(range(2, 8)).assign(y(range(0, 6)));
  realize(x, y);
  expect_values(x, {2, 3, 4, 5, 6, 7, 6, 7});
  expect_values(y, {0, 1, 0, 1, 2, 3, 4, 5});
  x.assign(flip(x) + x);
  expect_values(x.realize(), {9, 9, 11, 11, 11, 11, 9, 9});
}

TEST(LazyInPlace, PartsThroughAllKindsOfViews) {
  const Array x = arange(0, 12, 1, f32).reshape({3, 4});
  const Array m = (x + 0.f).contiguous().realize();
  transpose(m)(1).assign(array({-1.f, -2.f, -3.f}));
  flip(m, 1)(all, 0).assign(7.f);
  m.reshape({2, 6})(1, range(0, 6, 3)) += 100.f;
  stride(m, {2, 2})(0).assign(0.f);
  m.realize();
  expect_values(m, {0, -1, 0, 7, 4, -2, 106, 7, 8, -3 + 100, 10, 7});
}

TEST(LazyInPlace, OfWhatIsNotThereYet) {
  const Array base = array({1.f, 2.f, 3.f});
  const Array x = base + 1.f;  // an expression
  x(1).assign(50.f);
  expect_values(x, {2, 50, 4});
  expect_values(base, {1, 2, 3});
  const Array z = zeros({3});
  z += 1.f;
  z(range(1, 3)) *= 2.f;
  expect_values(z, {1, 2, 2});
}

TEST(LazyInPlace, AnExpressionHasMemoryOnceItIsRealized) {
  const Array w = (random(1, {4}) - 0.5f).realize();
  const void* before = w.view().data;
  const Array same = w;
  w.assign(w * 2.f).realize();
  EXPECT_EQ(w.view().data, before);
  EXPECT_EQ(same.view().data, before);
}

TEST(LazyInPlace, ACopyOfTheHandleIsTheSameArrayAndAnExpressionIsNot) {
  const Array x = array({1.f});
  const Array same = x, other = x * 1.f;  // folded to x's value
  x.assign(5.f).realize();
  EXPECT_EQ(same.item(), 5);
  EXPECT_EQ(other.item(), 1);
}

TEST(LazyInPlace, WhatIsReadElsewhereGoesAside) {
  const Array x = arange(0, 9, 1, f32).reshape({3, 3}).contiguous().realize();
  x.assign(x + transpose(x)).realize();
  expect_values(x, {0, 4, 8, 4, 8, 12, 8, 12, 16});
  x.assign(matmul(x, x) * 0.5f).realize();
  EXPECT_EQ(x.vector<float>()[0], 40);
}

TEST(LazyInPlace, Refused) {
  const float memory[2] = {1, 2};
  const Array x = array(TensorView(memory, {2}));
  EXPECT_THROW(x.assign(x + 1.f), Error);
  const Array y = array({1.f, 2.f});
  EXPECT_THROW(y.assign(array({1.f, 2.f, 3.f})), Error);
  EXPECT_THROW(y.assign(array({1.0, 2.0})), Error);
  EXPECT_THROW(expand(y.reshape({2, 1}), {2, 3}).assign(0.f), Error);
}

}  // namespace
}  // namespace xhat::lazy::test::lazy_in_place_test
