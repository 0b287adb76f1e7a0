// std::mdspan as an argument, in place, and a back-port of it for C++20.
//
//   std::vector<float> values(6);
//   xhat::mdspan<float, xhat::dextents<int64_t, 2>> x(values.data(), 2, 3);
//   x(1, 2) = 7;                                        // C++20 has no x[1, 2]
//   op.infer({{"x", xhat::view(x)}, {"y", xhat::view(y)}});
//
// Any class with the members of std::mdspan is taken: that of the library, Kokkos', this one. Elements are where the mapping says: strides
// go into the view, and a mapping without strides is refused when it is compiled.
#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#if __has_include(<mdspan>)
#include <mdspan>
#endif

#include "runtime/host/tensor_view.h"

namespace xhat {

namespace detail {

template <class M>
concept Mdspan = requires(const M& m) {
  typename M::element_type;
  { M::rank() } -> std::convertible_to<size_t>;
  { m.extent(0) } -> std::convertible_to<int64_t>;
  { m.stride(0) } -> std::convertible_to<int64_t>;
  { m.data_handle() } -> std::convertible_to<const typename M::element_type*>;
};

}  // namespace detail

template <detail::Mdspan M>
TensorView view(const M& m) {
  constexpr size_t rank = M::rank();
  static_assert(rank <= kMaxRank, "a tensor of rank above 12 cannot be passed to a kernel");
  std::array<int64_t, rank> shape = {}, strides = {};
  for (size_t i = 0; i < rank; ++i) {
    shape[i] = static_cast<int64_t>(m.extent(i));
    strides[i] = static_cast<int64_t>(m.stride(i));
  }
  return TensorView(m.data_handle(), std::span<const int64_t>(shape), std::span<const int64_t>(strides));
}

#ifdef __cpp_lib_mdspan
using std::dextents;
using std::layout_left;
using std::layout_right;
using std::layout_stride;
using std::mdspan;
#else

// Sizes that are all known when the program runs; of std::extents, what tensors need.
template <class Index, size_t Rank>
class dextents {
 public:
  using index_type = Index;
  constexpr dextents() = default;
  template <std::convertible_to<Index>... Sizes>
  requires(sizeof...(Sizes) == Rank) constexpr explicit dextents(Sizes... sizes) : sizes_{static_cast<Index>(sizes)...} {}
  constexpr explicit dextents(const std::array<Index, Rank>& sizes) : sizes_(sizes) {}
  static constexpr size_t rank() { return Rank; }
  constexpr Index extent(size_t i) const { return sizes_[i]; }

 private:
  std::array<Index, Rank> sizes_ = {};
};

struct layout_right {};   // row-major: the last index goes by single elements
struct layout_left {};    // column-major
struct layout_stride {};  // as it is said

template <class T, class Extents, class Layout = layout_right>
class mdspan {
 public:
  using element_type = T;
  using index_type = typename Extents::index_type;
  static constexpr size_t rank() { return Extents::rank(); }

  mdspan() = default;
  template <std::convertible_to<index_type>... Sizes>
  requires(sizeof...(Sizes) == Extents::rank() && !std::same_as<Layout, layout_stride>) explicit mdspan(T* data, Sizes... sizes)
      : mdspan(data, Extents(sizes...)) {}
  mdspan(T* data, const Extents& extents) requires(!std::same_as<Layout, layout_stride>) : data_(data), extents_(extents) {
    index_type step = 1;
    for (size_t n = 0; n < rank(); ++n) {
      const size_t i = std::same_as<Layout, layout_left> ? n : rank() - 1 - n;
      strides_[i] = step;
      step *= extents.extent(i);
    }
  }
  mdspan(T* data, const Extents& extents,
         const std::array<index_type, Extents::rank()>& strides) requires(std::same_as<Layout, layout_stride>)
      : data_(data), extents_(extents), strides_(strides) {}

  template <std::convertible_to<index_type>... Indices>
  requires(sizeof...(Indices) == Extents::rank()) T& operator()(Indices... indices) const {
    const std::array<index_type, Extents::rank()> at = {static_cast<index_type>(indices)...};
    index_type offset = 0;
    for (size_t i = 0; i < rank(); ++i) offset += at[i] * strides_[i];
    return data_[offset];
  }
  T* data_handle() const { return data_; }
  const Extents& extents() const { return extents_; }
  index_type extent(size_t i) const { return extents_.extent(i); }
  index_type stride(size_t i) const { return strides_[i]; }
  size_t size() const {
    size_t all = 1;
    for (size_t i = 0; i < rank(); ++i) all *= static_cast<size_t>(extent(i));
    return all;
  }

 private:
  T* data_ = nullptr;
  Extents extents_;
  std::array<index_type, Extents::rank()> strides_ = {};
};
#endif

namespace dsl {
using xhat::view;
}

}  // namespace xhat
