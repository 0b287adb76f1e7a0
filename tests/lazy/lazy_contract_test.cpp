// The program of the contract, as a user writes it who opens no other namespace, and arrays of other libraries.
#include <gtest/gtest.h>

#include <Eigen/Core>
#include <iostream>
#include <sstream>

#include "runtime/dlpack.h"
#include "runtime/eigen.h"
#include "xhat.h"
#include "xhat/lazy.h"

using namespace xhat::lazy;

namespace {

TEST(LazyContract, TheProgram) {
  float xs[6] = {1, 2, 3, 4, 5, 6}, ws[6] = {1, -1, 2, -2, 3, -3}, out[4];
  Array x = array(TensorView(xs, {2, 3})), w = array(TensorView(ws, {3, 2})), b = array({0.5f, -0.5f}), t = zeros({2, 2});
  Array y = relu(matmul(x, w) + b);
  Array loss = mean(square(y - t));
  auto [gw, gb] = grad(loss, {w, b});
  EXPECT_FALSE(loss.is_realized());
  realize(loss, gw, gb);
  EXPECT_TRUE(loss.is_realized() && gw.is_realized() && gb.is_realized());
  EXPECT_FLOAT_EQ(loss.item<float>(), (14.5f * 14.5f + 32.5f * 32.5f) / 4);
  y.to(TensorView(out, {2, 2}));
  EXPECT_EQ(out[2], 32.5f);
  EXPECT_EQ(gb.vector<float>(), (std::vector<float>{0.5f * (14.5f + 32.5f), 0}));
  const Array row = w(0);
  w.assign(w - 0.1f * gw);
  w.realize();
  EXPECT_FLOAT_EQ(ws[0], 1 - 0.1f * 0.5f * (14.5f + 4 * 32.5f));
  EXPECT_EQ(row.vector<float>()[0], ws[0]);
  std::ostringstream text;
  text << y << ", " << (x + 1) << ", " << w;
  EXPECT_EQ(text.str(), "f32[2,2] realized, f32[2,3] lazy: 1 kernel, 48 bytes, f32[3,2] realized");
}

TEST(LazyContract, FormsThatReadTheSame) {
  const Array x = arange(24).cast(f32).reshape({2, 3, 4});
  const int n = 3;
  EXPECT_EQ(x(all, range(1, n), -1).shape(), (Shape{2, 2}));
  EXPECT_EQ(sum(x, 1).shape(), x.sum(1).shape());
  EXPECT_EQ(sum(x, {0, 2}, true).shape(), (Shape{1, 3, 1}));
  EXPECT_EQ(max(x, 1).shape(), max(x, {1}).shape());
  EXPECT_EQ(argmax(x, -1).shape(), (Shape{2, 3}));
  EXPECT_EQ(mean(x).rank(), 0);
  EXPECT_EQ(all(x >= 0).item<bool>(), true);
  EXPECT_EQ(concat({x, x}, 1).shape(), concat(1, x, x).shape());
  EXPECT_EQ(transpose(x, 0, 1).shape(), (Shape{3, 2, 4}));
  EXPECT_EQ(x.T().shape(), (Shape{2, 4, 3}));
  EXPECT_EQ(where(x > 3, x, 0).dtype(), DType::f32);
  EXPECT_EQ((1 - x).dtype(), DType::f32);
  EXPECT_EQ((2 * arange(3)).dtype(), DType::i64);
  EXPECT_EQ(((x > 3 && x < 5) || !(x != 7)).dtype(), DType::boolean);
  EXPECT_EQ(einsum("bik,bkj->bij", x, x.T()).shape(), (Shape{2, 3, 3}));
  EXPECT_EQ(pad(x, {{1, 1}, {0, 0}, {2, 0}}).shape(), (Shape{4, 3, 6}));
  EXPECT_EQ(expand(x(0), {5, 3, 4}).shape(), (Shape{5, 3, 4}));
  EXPECT_EQ(apply(parse_op("op f(x: f32[N,M,K]) -> (y) { y[n] = sum(m,k: x[n,m,k]) }"), {x}).shape(), (Shape{2}));
  EXPECT_EQ(random(7, {2, 2}).shape(), (Shape{2, 2}));
}

TEST(LazyContract, EigenInAndOut) {
  Eigen::MatrixXf m(2, 3);  // columns first
  m << 1, 2, 3, 4, 5, 6;
  const Array x = array(xhat::view(m));
  EXPECT_EQ((x * 2.f).vector<float>(), (std::vector<float>{2, 4, 6, 8, 10, 12}));
  x.assign(x + 1.f).realize();
  EXPECT_EQ(m(1, 0), 5);
  const Array y = x.T() * 1.5f;
  const xhat::TensorView v = y.view();
  const Eigen::Map<Eigen::Matrix<float, 3, 2, Eigen::RowMajor>> out(static_cast<float*>(v.data));
  EXPECT_EQ(out(2, 1), 10.5f);
}

TEST(LazyContract, DlpackInAndOut) {
  bool released = false;
  float memory[3] = {1, 2, 3};
  {
    auto held = std::make_shared<xhat::DlpackTensor>(xhat::to_dlpack(TensorView(memory, {3}), [&] { released = true; }));
    const Array x = array(held->view(), held);
    held.reset();
    EXPECT_EQ(sum(x).item(), 6);
    EXPECT_FALSE(released);
  }
  EXPECT_TRUE(released);
  DLManagedTensor* out = nullptr;
  {
    const Array y = array({1.f, 2.f}) + 1.f;
    out = xhat::to_dlpack(y.view(), [y] {});
  }
  EXPECT_EQ(static_cast<float*>(out->dl_tensor.data)[1], 3);
  out->deleter(out);
}

}  // namespace
