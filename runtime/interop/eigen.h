// Eigen's matrices, arrays, maps, blocks and tensors as arguments, in place: no copies.
//
//   Eigen::MatrixXf x(3, 4);
//   Eigen::VectorXf scale(4);
//   op.infer({{"x", xhat::view(x)}, {"scale", xhat::view(scale)}, {"y", xhat::view(y)}});
//
//   matrices and arrays        rank 2, [rows, columns]; vectors at compile time have rank 1
//   Eigen::Tensor, TensorMap   their own rank (include unsupported/Eigen/CXX11/Tensor yourself, it is big)
//   float& and the like        rank 0, for scalar parameters and results
//   Eigen::half, bfloat16      as elements of any of these: f16, bf16
//
// Storage order only changes the strides: element (i, j) of the matrix is element [i, j] of the op's tensor.
// Kernels run fastest if the last dimension is contiguous, as in Eigen::RowMajor. A const object gives a read-only
// view. A view is valid as long as the memory it refers to: resizing a matrix invalidates it.
#pragma once
#include <array>
#include <type_traits>

#include <Eigen/Core>

#include "runtime/host/tensor_view.h"

namespace xhat {

template <>
constexpr DType dtype_of<Eigen::half>() {
  return DType::f16;
}
template <>
constexpr DType dtype_of<Eigen::bfloat16>() {
  return DType::bf16;
}

namespace detail {

template <class T>
concept EigenDense = std::is_base_of_v<Eigen::DenseBase<std::remove_cvref_t<T>>, std::remove_cvref_t<T>>;

// Types that own their elements: a temporary would be destroyed before the call.
template <class T>
concept EigenOwner =
    std::is_base_of_v<Eigen::PlainObjectBase<std::remove_cvref_t<T>>, std::remove_cvref_t<T>>;

// Recognized by its members, not by name: the header with the names takes a second or two to compile.
template <class T>
concept EigenTensor = !EigenDense<T> && requires(T & t) {
  t.data();
  t.dimension(0);
  T::NumDimensions;
  T::Layout;
};

// A const TensorMap of Eigen still gives a non-const pointer.
template <class Element, class Container>
using ElementOf = std::conditional_t<std::is_const_v<Container>, const Element, Element>;

}  // namespace detail

template <detail::EigenDense M>
TensorView view(M&& m) {
  using Plain = std::remove_cvref_t<M>;
  static_assert(
      Plain::Flags & Eigen::DirectAccessBit,
      "this Eigen expression has no memory of its own; assign it to a matrix first, then pass that");
  static_assert(!detail::EigenOwner<M> || std::is_lvalue_reference_v<M>,
                "a temporary Eigen matrix would be gone before the call; give it a name first");
  using Element = std::remove_pointer_t<decltype(m.data())>;
  auto* data = static_cast<detail::ElementOf<Element, std::remove_reference_t<M>>*>(m.data());
  if constexpr (Plain::IsVectorAtCompileTime) {
    std::array<int64_t, 1> shape = {m.size()}, strides = {m.innerStride()};
    return TensorView(data, std::span<const int64_t>(shape), std::span<const int64_t>(strides));
  } else {
    std::array<int64_t, 2> shape = {m.rows(), m.cols()}, strides = {m.rowStride(), m.colStride()};
    return TensorView(data, std::span<const int64_t>(shape), std::span<const int64_t>(strides));
  }
}

template <detail::EigenTensor T>
TensorView view(T& t) {
  constexpr int rank = T::NumDimensions;
  static_assert(rank <= kMaxRank, "a tensor of rank above 12 cannot be passed to a kernel");
  std::array<int64_t, rank> shape = {}, strides = {};
  int64_t step = 1;
  for (int i = 0; i < rank; ++i) {
    bool last_is_dense = static_cast<int>(T::Layout) == static_cast<int>(Eigen::RowMajor);
    auto d = static_cast<size_t>(last_is_dense ? rank - 1 - i : i);
    shape[d] = t.dimension(d);
    strides[d] = step;
    step *= shape[d];
  }
  using Element = std::remove_pointer_t<decltype(t.data())>;
  return TensorView(static_cast<detail::ElementOf<Element, T>*>(t.data()), std::span<const int64_t>(shape),
                    std::span<const int64_t>(strides));
}

// A scalar. A const one, or a temporary, can only be read; a temporary lasts until the end of the call that
// it is an argument of.
template <class T>
requires std::is_arithmetic_v<T> TensorView view(T& scalar) {
  return TensorView(&scalar, std::span<const int64_t>{});
}

namespace dsl {
using xhat::view;
}

}  // namespace xhat
