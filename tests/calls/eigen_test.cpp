// Eigen's objects as arguments: element (i, j) is element [i, j] whatever the storage, and nothing is copied.
#include "runtime/interop/eigen.h"

#include <gtest/gtest.h>
#include <unsupported/Eigen/CXX11/Tensor>

#include "xhat.h"

namespace eigen_test {
namespace {

using namespace xhat::dsl;
using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

std::vector<int64_t> shape(const TensorView& v) { return {v.shape.begin(), v.shape.begin() + v.rank}; }
std::vector<int64_t> strides(const TensorView& v) { return {v.strides.begin(), v.strides.begin() + v.rank}; }
using Numbers = std::vector<int64_t>;

// Element (i, j) is 10*i + j.
template <class M>
void number(M&& m) {
  for (Eigen::Index i = 0; i < m.rows(); ++i)
    for (Eigen::Index j = 0; j < m.cols(); ++j) m(i, j) = static_cast<float>(10 * i + j);
}

// Not symmetric in the two dimensions, so that a transposed matrix gives other results.
CompiledOp weigh_columns() {
  return compile(parse_op(R"(op weigh(x: f32[N,D], w: f32[D]) -> (y, s) {
    y[n,d] = x[n,d] * w[d] + f32(n)
    s[n] = sum(d: x[n,d] * w[d])
  })"));
}

// Runs it on the given matrices, forward and backward, and compares with loops.
template <class X, class Y>
void expect_right(X&& x, Y&& y) {
  CompiledOp op = weigh_columns();
  number(x);
  Eigen::VectorXf w = Eigen::VectorXf::LinSpaced(x.cols(), 1, static_cast<float>(x.cols())), s(x.rows());
  Stash stash = op.forward({{"x", view(x)}, {"w", view(w)}, {"y", view(y)}, {"s", view(s)}});
  for (Eigen::Index i = 0; i < x.rows(); ++i) {
    float total = 0;
    for (Eigen::Index j = 0; j < x.cols(); ++j) {
      total += x(i, j) * w(j);
      EXPECT_EQ(y(i, j), x(i, j) * w(j) + static_cast<float>(i)) << i << ", " << j;
    }
    EXPECT_NEAR(s(i), total, 1e-3f) << i;
  }
  // dy = 0 and ds = (1, 2, ...): grad_x[i,j] = (i + 1) * w[j], into a matrix of the other storage order.
  RowMajor dy = RowMajor::Zero(x.rows(), x.cols());
  Eigen::VectorXf ds = Eigen::VectorXf::LinSpaced(x.rows(), 1, static_cast<float>(x.rows())), gw(x.cols());
  Eigen::MatrixXf gx(x.rows(), x.cols());
  op.backward({{"x", view(x)},
               {"w", view(w)},
               {"dy", view(dy)},
               {"ds", view(ds)},
               {"grad_x", view(gx)},
               {"grad_w", view(gw)}},
              stash);
  for (Eigen::Index i = 0; i < x.rows(); ++i)
    for (Eigen::Index j = 0; j < x.cols(); ++j)
      EXPECT_EQ(gx(i, j), static_cast<float>(i + 1) * w(j)) << i << ", " << j;
}

TEST(Eigen, ShapesAndStrides) {
  Eigen::MatrixXf columns(3, 4);
  EXPECT_EQ(shape(view(columns)), (Numbers{3, 4}));
  EXPECT_EQ(strides(view(columns)), (Numbers{1, 3}));
  RowMajor rows(3, 4);
  EXPECT_EQ(strides(view(rows)), (Numbers{4, 1}));
  EXPECT_TRUE(view(rows).dense());
  EXPECT_EQ(strides(view(rows.transpose())), (Numbers{1, 4}));
  Eigen::Matrix<float, 2, 5> fixed;
  EXPECT_EQ(shape(view(fixed)), (Numbers{2, 5}));
  EXPECT_EQ(strides(view(fixed)), (Numbers{1, 2}));
  EXPECT_EQ(view(columns).data, columns.data());
}

TEST(Eigen, VectorsHaveRankOne) {
  Eigen::VectorXf column(5);
  Eigen::RowVectorXf row(6);
  RowMajor m(3, 4);
  EXPECT_EQ(shape(view(column)), Numbers{5});
  EXPECT_EQ(shape(view(row)), Numbers{6});
  EXPECT_EQ(strides(view(m.row(1))), Numbers{1});
  EXPECT_EQ(strides(view(m.col(1))), Numbers{4});
  EXPECT_EQ(view(m.col(1)).data, m.data() + 1);
  EXPECT_EQ(strides(view(m.diagonal())), Numbers{5});
  EXPECT_EQ(shape(view(m.topRows(1))), (Numbers{1, 4}));  // one row, but not known to be one
}

TEST(Eigen, TypesAndScalars) {
  Eigen::ArrayXi ids(3);
  Eigen::Array<bool, Eigen::Dynamic, 1> flags(3);
  Eigen::MatrixXd wide(2, 2);
  EXPECT_EQ(view(ids).type, DType::i32);
  EXPECT_EQ(view(flags).type, DType::boolean);
  EXPECT_EQ(view(wide).type, DType::f64);
  double scalar = 1;
  EXPECT_EQ(view(scalar).rank, 0);
  EXPECT_EQ(view(scalar).data, &scalar);
}

TEST(Eigen, ConstIsReadOnly) {
  Eigen::MatrixXf m(2, 2);
  const Eigen::MatrixXf& same = m;
  const float fixed = 1;
  Eigen::Tensor<float, 1> t(2);
  const Eigen::Tensor<float, 1>& same_tensor = t;
  EXPECT_TRUE(view(m).writable);
  EXPECT_TRUE(view(m.block(0, 0, 1, 2)).writable);
  EXPECT_TRUE(view(t).writable);
  EXPECT_FALSE(view(same).writable);
  EXPECT_FALSE(view(same.block(0, 0, 1, 2)).writable);
  EXPECT_FALSE(view(same.transpose()).writable);
  EXPECT_FALSE(view(Eigen::Map<const Eigen::MatrixXf>(m.data(), 2, 2)).writable);
  EXPECT_FALSE(view(same_tensor).writable);
  EXPECT_FALSE(view(fixed).writable);

  CompiledOp op = compile(parse_op("op twice(x: f32[N,D]) -> (y) { y[n,d] = 2 * x[n,d] }"));
  Eigen::MatrixXf x = Eigen::MatrixXf::Ones(2, 2);
  m.setZero();
  EXPECT_THROW(op.infer({{"x", view(x)}, {"y", view(same)}}), Error);
  EXPECT_EQ(m, Eigen::MatrixXf::Zero(2, 2));
}

TEST(Eigen, StorageOrders) {
  Eigen::MatrixXf columns(5, 37);
  RowMajor rows(5, 37);
  Eigen::MatrixXf y_columns(5, 37);
  RowMajor y_rows(5, 37);
  expect_right(columns, y_columns);
  expect_right(rows, y_rows);
  expect_right(rows, y_columns);
  expect_right(columns, y_rows);
}

TEST(Eigen, BlocksLeaveTheRestAlone) {
  Eigen::MatrixXf x(9, 40), y = Eigen::MatrixXf::Constant(9, 40, -7);
  x.setConstant(1e30f);
  auto part = y.block(2, 1, 5, 37);
  expect_right(x.block(1, 2, 5, 37), part);
  Eigen::MatrixXf around = y;
  around.block(2, 1, 5, 37).setConstant(-7);
  EXPECT_EQ(around, Eigen::MatrixXf::Constant(9, 40, -7));
}

TEST(Eigen, RefsAndMapsWithStrides) {
  RowMajor x(8, 50), y(8, 50);
  Eigen::Ref<RowMajor, 0, Eigen::OuterStride<>> ref = x.block(1, 3, 6, 20);
  EXPECT_EQ(strides(view(ref)), (Numbers{50, 1}));
  Eigen::Map<RowMajor, 0, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>> every_other(y.data(), 6, 20,
                                                                                     {50, 2});
  EXPECT_EQ(strides(view(every_other)), (Numbers{50, 2}));
  expect_right(ref, every_other);
}

// y[a,b,c] = 100 a + 10 b + c + x[a,b,c], s[c] sums over a and b.
template <class T>
void expect_right_tensor(T& x, T& y) {
  CompiledOp op = compile(parse_op(R"(op three(x: f32[A,B,C]) -> (y, s) {
    y[a,b,c] = x[a,b,c] + f32(100*a + 10*b + c)
    s[c] = sum(a, b: x[a,b,c])
  })"));
  Eigen::Tensor<float, 1> s(x.dimension(2));
  for (Eigen::Index a = 0; a < x.dimension(0); ++a)
    for (Eigen::Index b = 0; b < x.dimension(1); ++b)
      for (Eigen::Index c = 0; c < x.dimension(2); ++c) x(a, b, c) = static_cast<float>(a * 7 + b * 3 + c);
  op.infer({{"x", view(x)}, {"y", view(y)}, {"s", view(s)}});
  for (Eigen::Index c = 0; c < x.dimension(2); ++c) {
    float total = 0;
    for (Eigen::Index a = 0; a < x.dimension(0); ++a)
      for (Eigen::Index b = 0; b < x.dimension(1); ++b) {
        total += x(a, b, c);
        EXPECT_EQ(y(a, b, c), x(a, b, c) + static_cast<float>(100 * a + 10 * b + c)) << a << b << c;
      }
    EXPECT_EQ(s(c), total) << c;
  }
}

TEST(Eigen, TensorsOfBothLayouts) {
  Eigen::Tensor<float, 3> x(2, 3, 4), y(2, 3, 4);
  EXPECT_EQ(shape(view(x)), (Numbers{2, 3, 4}));
  EXPECT_EQ(strides(view(x)), (Numbers{1, 2, 6}));
  expect_right_tensor(x, y);
  Eigen::Tensor<float, 3, Eigen::RowMajor> xr(2, 3, 4), yr(2, 3, 4);
  EXPECT_EQ(strides(view(xr)), (Numbers{12, 4, 1}));
  expect_right_tensor(xr, yr);
}

TEST(Eigen, TensorMapsAndFixedTensors) {
  std::vector<float> memory(24), results(24);
  using Map = Eigen::TensorMap<Eigen::Tensor<float, 3, Eigen::RowMajor>>;
  Map x(memory.data(), 2, 3, 4), y(results.data(), 2, 3, 4);
  EXPECT_EQ(view(x).data, memory.data());
  expect_right_tensor(x, y);
  Eigen::TensorMap<Eigen::Tensor<const float, 3>> fixed(memory.data(), 2, 3, 4);
  EXPECT_FALSE(view(fixed).writable);
  Eigen::TensorFixedSize<float, Eigen::Sizes<2, 3, 4>> xf, yf;
  EXPECT_EQ(shape(view(xf)), (Numbers{2, 3, 4}));
  expect_right_tensor(xf, yf);
  Eigen::Tensor<double, 0> scalar;
  EXPECT_EQ(view(scalar).rank, 0);
}

TEST(Eigen, EmptyMatrices) {
  Eigen::MatrixXf x(0, 3), y(0, 3);
  Eigen::VectorXf w = Eigen::VectorXf::Ones(3), s(0);
  weigh_columns().infer({{"x", view(x)}, {"w", view(w)}, {"y", view(y)}, {"s", view(s)}});
  EXPECT_EQ(shape(view(x)), (Numbers{0, 3}));
}

TEST(Eigen, HalfPrecision) {
  Eigen::Matrix<Eigen::half, Eigen::Dynamic, 1> x(5), y(5);
  Eigen::Array<Eigen::bfloat16, Eigen::Dynamic, 1> b(5);
  for (int i = 0; i < 5; ++i) x[i] = Eigen::half(0.5f * static_cast<float>(i));
  CompiledOp op = compile(parse_op("op f(x: f16[N]) -> (y, b) { y[n] = x[n] * 3; b[n] = bf16(x[n]) }"));
  op.infer({{"x", view(x)}, {"y", view(y)}, {"b", view(b)}});
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(static_cast<float>(y[i]), 1.5f * static_cast<float>(i));
    EXPECT_EQ(static_cast<float>(b[i]), 0.5f * static_cast<float>(i));
  }
}

}  // namespace
}  // namespace eigen_test
