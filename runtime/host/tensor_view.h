// A description of the caller's memory: pointer, element type, shape and strides. Owns nothing.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <ranges>
#include <span>
#include <string_view>
#include <type_traits>

#include "expr/core/dtype.h"
#include "expr/core/error.h"
#include "runtime/host/target.h"

namespace xhat {

constexpr int kMaxRank = 12;

// Elements of f16 and bf16 in C++: 16 bits, made of a float by rounding to the nearest, ties to even.
struct float16 {
  uint16_t bits = 0;
  float16() = default;
  float16(float v) : bits(f16_bits(v)) {}
  operator float() const { return static_cast<float>(f16_value(bits)); }
};
struct bfloat16 {
  uint16_t bits = 0;
  bfloat16() = default;
  bfloat16(float v) : bits(bf16_bits(v)) {}
  operator float() const { return static_cast<float>(bf16_value(bits)); }
};

// The dtype of a C++ type. C++23's std::float16_t and std::bfloat16_t are known too, where the library has them.
template <class T>
constexpr DType dtype_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<U, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<U, float16>)
    return DType::f16;
  else if constexpr (std::is_same_v<U, bfloat16>)
    return DType::bf16;
#ifdef __STDCPP_FLOAT16_T__
  else if constexpr (std::is_same_v<U, decltype(0.0f16)>)
    return DType::f16;
#endif
#ifdef __STDCPP_BFLOAT16_T__
  else if constexpr (std::is_same_v<U, decltype(0.0bf16)>)
    return DType::bf16;
#endif
  else if constexpr (std::is_same_v<U, bool>)
    return DType::boolean;
  else if constexpr (std::is_integral_v<U> && sizeof(U) == 8 && std::is_signed_v<U>)
    return DType::i64;
  else if constexpr (std::is_integral_v<U> && sizeof(U) == 4 && std::is_signed_v<U>)
    return DType::i32;
  else if constexpr (std::is_integral_v<U> && sizeof(U) == 4)
    return DType::u32;
  else {
    static_assert(std::is_same_v<U, uint8_t>, "xhat has no dtype for this C++ type");
    return DType::u8;
  }
}

struct TensorView;

namespace detail {

// std::vector, std::span, std::array: elements lie side by side, in memory that outlives the expression (no temporary vector).
template <class C>
concept ContiguousMemory = !std::is_same_v<std::remove_cvref_t<C>, TensorView> && !std::is_array_v<std::remove_cvref_t<C>> &&
                           std::ranges::contiguous_range<C> && std::ranges::sized_range<C> && std::ranges::borrowed_range<C>;

}  // namespace detail

// Strides are in elements, slowest dimension first, like the shape. Negative strides are refused.
struct TensorView {
  void* data = nullptr;
  DType type = DType::f32;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape = {};
  std::array<int64_t, kMaxRank> strides = {};
  bool writable = true;
  Target place = Target::cpu;  // the device whose memory `data` is; on a GPU it is a CUDA pointer or a cl_mem

  TensorView() = default;

  // Row-major without gaps. A const pointer gives a view that can only be read.
  template <class T>
  TensorView(T* p, std::span<const int64_t> extents) : TensorView(void_of(p), dtype_of<T>(), extents, {}) {
    writable = !std::is_const_v<T>;
  }
  template <class T>
  TensorView(T* p, std::initializer_list<int64_t> extents)
      : TensorView(p, std::span<const int64_t>(extents.begin(), extents.size())) {}
  // With strides in elements.
  template <class T>
  TensorView(T* p, std::span<const int64_t> extents, std::span<const int64_t> steps)
      : TensorView(void_of(p), dtype_of<T>(), extents, steps) {
    writable = !std::is_const_v<T>;
  }
  template <class T>
  TensorView(T* p, std::initializer_list<int64_t> extents, std::initializer_list<int64_t> steps)
      : TensorView(p, span_of(extents), span_of(steps)) {}
  // Of a std::vector, std::span or std::array, whose length is checked: it has as many elements as the shape, or with strides at
  // least those that they reach. Throws Error. Of one dimension if no shape is given.
  template <detail::ContiguousMemory C>
  TensorView(C&& c) : TensorView(std::ranges::data(c), {static_cast<int64_t>(std::ranges::size(c))}) {}
  template <detail::ContiguousMemory C>
  TensorView(C&& c, std::span<const int64_t> extents) : TensorView(std::ranges::data(c), extents) {
    check_length(static_cast<int64_t>(std::ranges::size(c)));
  }
  template <detail::ContiguousMemory C>
  TensorView(C&& c, std::initializer_list<int64_t> extents) : TensorView(c, span_of(extents)) {}
  template <detail::ContiguousMemory C>
  TensorView(C&& c, std::span<const int64_t> extents, std::span<const int64_t> steps) : TensorView(std::ranges::data(c), extents, steps) {
    check_length(static_cast<int64_t>(std::ranges::size(c)));
  }
  template <detail::ContiguousMemory C>
  TensorView(C&& c, std::initializer_list<int64_t> extents, std::initializer_list<int64_t> steps)
      : TensorView(c, span_of(extents), span_of(steps)) {}
  TensorView(void* p, DType t, std::span<const int64_t> extents, std::span<const int64_t> steps) : data(p), type(t) {
    if (extents.size() > kMaxRank) throw Error("a tensor of rank above 12 cannot be passed to a kernel");
    if (!steps.empty() && steps.size() != extents.size()) throw Error("as many strides as extents are needed");
    rank = static_cast<int>(extents.size());
    int64_t step = 1;
    for (size_t i = extents.size(); i-- > 0;) {
      shape[i] = extents[i];
      strides[i] = steps.empty() ? step : steps[i];
      step *= extents[i];
    }
  }

  std::span<const int64_t> extents() const { return {shape.data(), static_cast<size_t>(rank)}; }
  int64_t elements() const;
  int64_t bytes() const { return elements() * static_cast<int64_t>(byte_size(type)); }  // bytes of the elements, without gaps
  bool dense() const;  // row-major without gaps
  bool on_device() const { return place != Target::cpu; }
  // One past the last byte touched.
  const char* begin() const { return static_cast<const char*>(data); }
  const char* end() const;

 private:
  void check_length(int64_t given) const;
  static std::span<const int64_t> span_of(std::initializer_list<int64_t> list) { return {list.begin(), list.size()}; }
  template <class T>
  static void* void_of(T* p) {
    return const_cast<std::remove_cv_t<T>*>(p);
  }
};

// Memory of a GPU, used in place: a CUDA pointer, aligned to 16 bytes, or a cl_mem. T is the element type; const T is read only.
template <class T>
TensorView device_view(Target place, const void* memory, std::span<const int64_t> extents, std::span<const int64_t> steps = {}) {
  TensorView v(const_cast<void*>(memory), dtype_of<T>(), extents, steps);
  v.place = place;
  v.writable = !std::is_const_v<T>;
  return v;
}
template <class T>
TensorView device_view(Target place, const void* memory, std::initializer_list<int64_t> extents) {
  return device_view<T>(place, memory, std::span<const int64_t>(extents.begin(), extents.size()));
}

namespace runtime {

// Do the two views share memory? Columns of one matrix that have no element in common do not. Of a cl_mem, which is no address, only equal
// objects are known to.
bool overlap(const TensorView& a, const TensorView& b);

// Calls f(position, offset) for every element of v: its number in row-major order, and its offset from data, in elements.
template <class F>
void for_each_offset(const TensorView& v, F&& f) {
  int64_t n = v.elements();
  int64_t at[kMaxRank] = {};
  int64_t offset = 0;
  for (int64_t i = 0; i < n; ++i) {
    f(i, offset);
    for (size_t d = static_cast<size_t>(v.rank); d-- > 0;) {
      offset += v.strides[d];
      if (++at[d] < v.shape[d]) break;
      offset -= v.strides[d] * v.shape[d];
      at[d] = 0;
    }
  }
}

}  // namespace runtime

// A named argument of a call.
struct Argument {
  std::string_view name;
  TensorView view;
  bool accumulate = false;  // gradients: add to the tensor instead of overwriting it
};

}  // namespace xhat
