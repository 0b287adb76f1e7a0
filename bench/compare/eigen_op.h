// What the ops written in Eigen share: their tensors as Eigen sees them, and loops over them on all threads.
#pragma once
#include <Eigen/Core>

#include <algorithm>
#include <utility>
#include <vector>

#include "bench/compare/tensor_op.h"

namespace xhat::bench::eigen {

using Eigen::ArrayXf;
using Eigen::ArrayXXf;
using Eigen::Index;
using Op = TensorOp;

// Elements of a block, 8 kB: x, y, their cotangents and a temporary of as many fit the first-level cache.
constexpr Index kBlock = 2048;

using Part = Eigen::Map<ArrayXf>;  // of a tensor: a row, a block
using Matrix = Eigen::Map<Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;
// Of a part of at most kBlock elements; lives on the stack.
using Temporary = Eigen::Array<float, Eigen::Dynamic, 1, Eigen::ColMajor, kBlock, 1>;

// As Eigen sees it.
struct Tensor : bench::Tensor {
  Tensor(bench::Tensor t) : bench::Tensor(std::move(t)) {}

  Part part(Index first, Index count) const { return Part(data + first, count); }
  Part flat() const { return part(0, size()); }
  Part row(Index i) const { return part(i * columns(), columns()); }
  Matrix matrix() const { return Matrix(data, rows(), columns()); }
  Matrix matrix(Index i) const {  // the i-th of a batch, which lies in the last two axes
    Index r = shape[shape.size() - 2];
    return Matrix(data + i * r * columns(), r, columns());
  }
};

template <class F>
void parallel(Index n, F f) {
#pragma omp parallel for schedule(static)
  for (Index i = 0; i < n; ++i) f(i);
}

// f(part of each tensor), block by block; the tensors have one size.
template <class F, class... Tensors>
void by_blocks(F f, const Tensor& first, const Tensors&... others) {
  Index n = first.size();
  parallel((n + kBlock - 1) / kBlock, [&](Index block) {
    Index at = block * kBlock, count = std::min(kBlock, n - at);
    f(first.part(at, count), others.part(at, count)...);
  });
}

// f(row, sums) for every row: it adds to column k of sums, a thread's own, what totals[k] gets the sum of.
template <class F>
void by_rows_with_sums(Index rows, const std::vector<Tensor>& totals, F f) {
  int n = threads();
  std::vector<ArrayXXf> sums(n, ArrayXXf::Zero(totals[0].size(), totals.size()));
  parallel(n, [&](Index t) {
    for (Index i = rows * t / n; i < rows * (t + 1) / n; ++i) f(i, sums[t]);
  });
  for (size_t k = 0; k < totals.size(); ++k) {
    totals[k].flat() = sums[0].col(k);
    for (int t = 1; t < n; ++t) totals[k].flat() += sums[t].col(k);
  }
}

// gelu(u) = u/2 (1 + gelu_tanh(u)); expressions of u, so nothing is computed before they are assigned.
constexpr float kGeluScale = 0.7978845608028654f, kGeluCube = 0.044715f;
template <class U>
auto gelu_tanh(const U& u) {
  return (kGeluScale * u * (1 + kGeluCube * u.square())).tanh();
}
template <class U, class T>
auto gelu_slope(const U& u, const T& t) {  // t: gelu_tanh(u)
  return 0.5f * (1 + t + u * (1 - t.square()) * (kGeluScale + 3 * kGeluScale * kGeluCube * u.square()));
}

Loaders pointwise_loaders();  // eigen_pointwise.cpp
Loaders row_loaders();        // eigen_rows.cpp: normalizations and losses
Loaders product_loaders();    // eigen_products.cpp

}  // namespace xhat::bench::eigen
