// The lazy array: a handle of a value that nothing computes until somebody asks (docs/lazy.md).
//
// Copies of an Array are the same array. An array is one of three: an expression; a variable, which has memory and can be assigned to
// (array(), and every expression once it is realized); or a view of another array, which follows what that is assigned.
#pragma once
#include <concepts>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "expr/core/dtype.h"
#include "runtime/lazy/location.h"
#include "runtime/lazy/shape.h"

namespace xhat::lazy {

namespace detail {
struct State;
struct Node;
}  // namespace detail

template <class T>
concept Number = std::is_arithmetic_v<T>;

// Dimensions of a reduction; negative ones count from the end. Default: all.
class Axes {
 public:
  Axes() = default;
  template <std::same_as<int> I>
  Axes(I axis) : Axes{axis} {}
  Axes(std::initializer_list<int> axes) : axes_(axes), every_(false) {}
  Axes(std::vector<int> axes) : axes_(std::move(axes)), every_(false) {}
  bool every() const { return every_; }
  const std::vector<int>& axes() const { return axes_; }

 private:
  std::vector<int> axes_;
  bool every_ = true;
};
inline constexpr bool keepdim = true;  // sum(x, 1, keepdim)

class Array;
// `all` inside x(all, 3) is a whole dimension; all(x) is a reduction.
struct All {
  Array operator()(const Array& x, const Axes& axes = {}, bool keep = false, const Location& at = Location::current()) const;
};
inline constexpr All all;

// [begin, end) by step; negative positions count from the end; without an end, to the end.
struct Range {
  int64_t begin = 0, end = 0, step = 1;
  bool open = false;
};
inline Range range(int64_t begin, int64_t end, int64_t step = 1) { return {begin, end, step, false}; }
inline Range range(int64_t begin) { return {begin, 0, 1, true}; }

// What stands between the parentheses of x(all, range(1, 3), -1): a number takes the dimension away.
class Slice {
 public:
  Slice(All) : range({0, 0, 1, true}) {}
  Slice(Range r) : range(r) {}
  template <std::integral I>
  Slice(I index) : range({static_cast<int64_t>(index), 0, 1, false}), one(true) {}
  Range range;
  bool one = false;
};

class Array {
 public:
  Array() = default;  // no array; for containers
  template <Number T>
  Array(T number) : Array(of_number(number)) {}
  explicit Array(std::shared_ptr<detail::State> state) : state_(std::move(state)) {}

  const Shape& shape() const;
  int rank() const { return static_cast<int>(shape().size()); }
  int64_t size(int dimension) const;
  int64_t elements() const { return shape().elements(); }
  DType dtype() const;
  bool is_realized() const;

  // Computes the value, once; returns the array itself.
  const Array& realize() const;
  // The value of an array of one element; realizes.
  template <class T = double>
  T item(const Location& at = Location::current()) const {
    return static_cast<T>(number_at(at));
  }
  // Writes the value to the caller's memory; realizes nothing that is kept.
  void to(const TensorView& memory, const Location& at = Location::current()) const;
  // The memory of the value, which lives as long as the array and is overwritten by assignments; realizes. May have strides.
  TensorView view() const;
  // All elements in row-major order, converted to T; realizes.
  template <Number T>
  std::vector<T> vector() const {
    using Stored = std::conditional_t<std::same_as<T, bool>, uint8_t, T>;
    std::vector<Stored> copied(static_cast<size_t>(elements()));
    copy_to(TensorView(copied.data(), std::span<const int64_t>(shape())));
    return {copied.begin(), copied.end()};
  }

  // In place, when it is realized; the part of the viewed array, if this is a view. Arrays that were made from the old value keep it.
  const Array& assign(const Array& value, const Location& at = Location::current()) const;
  const Array& operator+=(const Array& other) const;
  const Array& operator-=(const Array& other) const;
  const Array& operator*=(const Array& other) const;
  const Array& operator/=(const Array& other) const;

  template <class... Slices>
  requires(sizeof...(Slices) > 0 && (std::constructible_from<Slice, Slices> && ...)) Array operator()(Slices... slices) const {
    const Slice all_of_them[] = {Slice(slices)...};
    return sliced(all_of_them);
  }
  Array sliced(std::span<const Slice> slices, const Location& at = Location::current()) const;

  Array reshape(const Shape& shape, const Location& at = Location::current()) const;
  Array permute(const std::vector<int>& order, const Location& at = Location::current()) const;
  Array transpose(int i = -2, int j = -1, const Location& at = Location::current()) const;
  Array expand(const Shape& shape, const Location& at = Location::current()) const;
  Array squeeze(int axis, const Location& at = Location::current()) const;
  Array unsqueeze(int axis, const Location& at = Location::current()) const;
  Array sum(const Axes& axes = {}, bool keep = false, const Location& at = Location::current()) const;
  Array mean(const Axes& axes = {}, bool keep = false, const Location& at = Location::current()) const;
  Array max(const Axes& axes = {}, bool keep = false, const Location& at = Location::current()) const;
  Array min(const Axes& axes = {}, bool keep = false, const Location& at = Location::current()) const;
  Array prod(const Axes& axes = {}, bool keep = false, const Location& at = Location::current()) const;
  Array any(const Axes& axes = {}, bool keep = false, const Location& at = Location::current()) const;
  Array all(const Axes& axes = {}, bool keep = false, const Location& at = Location::current()) const;
  Array argmax(const Axes& axes = {}, bool keep = false, const Location& at = Location::current()) const;
  Array argmin(const Axes& axes = {}, bool keep = false, const Location& at = Location::current()) const;
  Array T() const { return transpose(); }
  Array cast(DType type) const;
  Array contiguous() const;
  Array detach() const;  // the same value, of which nothing is differentiated

  // "f32[2,3] lazy: 1 kernel, 48 bytes"; the values too, if asked for, which realizes.
  std::string describe(bool values = false) const;

  const std::shared_ptr<detail::State>& state() const { return state_; }

 private:
  template <Number T>
  static Array of_number(T value) {
    if constexpr (std::floating_point<T>) {
      return of_float(static_cast<double>(value));
    } else {
      return of_integer(static_cast<int64_t>(value), std::same_as<T, bool>);
    }
  }
  static Array of_float(double value);
  static Array of_integer(int64_t value, bool is_bool);
  double number_at(const Location& at) const;
  void copy_to(const TensorView& memory) const;  // with types converted
  std::shared_ptr<detail::State> state_;
};

// Computes several at once: kernels are shared, and each value is computed once.
void realize(std::span<const Array> arrays);
template <std::same_as<Array>... Arrays>
void realize(const Array& first, const Arrays&... others) {
  const Array together[] = {first, others...};
  realize(std::span<const Array>(together));
}
inline void realize(const std::vector<Array>& arrays) { realize(std::span<const Array>(arrays)); }

// The description, and the values (which realizes them) unless values is false.
std::ostream& operator<<(std::ostream& out, const Array& x);  // the description alone
void print(const Array& x, bool values = false);              // to standard output

}  // namespace xhat::lazy
