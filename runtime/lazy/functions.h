// Everything that makes lazy arrays of lazy arrays. Nothing here computes. Wrong shapes and types throw xhat::Error, which names the
// call, the shapes and the caller's line.
#pragma once
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "expr/dsl/dsl.h"
#include "runtime/lazy/array.h"

namespace xhat::lazy {

using dsl::bf16;
using dsl::boolean;
using dsl::f16;
using dsl::f32;
using dsl::f64;
using dsl::i32;
using dsl::i64;
using dsl::u32;
using dsl::u8;

// --- Arrays to begin with ---

// The caller's memory, without a copy; it must outlive the array, or owner keeps it.
Array array(const TensorView& memory, std::shared_ptr<void> owner = {});
// Memory of its own.
Array array_of(const TensorView& values, const Shape& shape, const Location& at = Location::current());
template <Number T>
requires(!std::same_as<T, bool>) Array array(T number) { return array_of(TensorView(&number, {}), {}); }
template <Number T>
requires(!std::same_as<T, bool>) Array array(const std::vector<T>& values, const Shape& shape, const Location& at = Location::current()) {
  return array_of(TensorView(values.data(), {static_cast<int64_t>(values.size())}), shape, at);
}
template <Number T>
requires(!std::same_as<T, bool>) Array array(const std::vector<T>& values) { return array(values, {static_cast<int64_t>(values.size())}); }
template <Number T>
Array array(std::initializer_list<T> values, const Shape& shape, const Location& at = Location::current()) {
  return array(std::vector<T>(values), shape, at);
}
Array cast(const Array& x, DType type);

namespace detail {
template <class T>
struct NestedNumbers {
  static constexpr bool is_number = true;
  using Element = std::conditional_t<std::same_as<T, bool>, uint8_t, T>;
  static constexpr DType type = dtype_of<T>();
  static void put(const T& value, std::vector<Element>& into, Shape&, size_t, const Location&) { into.push_back(value); }
};
template <class T>
struct NestedNumbers<std::initializer_list<T>> {
  using Element = typename NestedNumbers<T>::Element;
  static constexpr DType type = NestedNumbers<T>::type;
  static void put(const std::initializer_list<T>& values, std::vector<Element>& into, Shape& shape, size_t depth, const Location& at) {
    const auto count = static_cast<int64_t>(values.size());
    if (shape.size() == depth)
      shape.push_back(count);
    else if (shape[depth] != count)
      ragged(at);
    for (const T& v : values) NestedNumbers<T>::put(v, into, shape, depth + 1, at);
  }
  [[noreturn]] static void ragged(const Location& at);
};
[[noreturn]] void ragged_numbers(const Location& at);
template <class T>
void NestedNumbers<std::initializer_list<T>>::ragged(const Location& at) {
  ragged_numbers(at);
}
template <class List>
Array of_nested(const List& values, const Location& at) {
  std::vector<typename NestedNumbers<List>::Element> flat;
  Shape shape;
  NestedNumbers<List>::put(values, flat, shape, 0, at);
  const int64_t count[] = {static_cast<int64_t>(flat.size())};
  return array_of(TensorView(static_cast<void*>(flat.data()), NestedNumbers<List>::type, count, {}), shape, at);
}
}  // namespace detail
template <Number T>
Array array(std::initializer_list<T> v, const Location& at = Location::current()) {
  return detail::of_nested(v, at);
}
template <Number T>
Array array(std::initializer_list<std::initializer_list<T>> v, const Location& at = Location::current()) {
  return detail::of_nested(v, at);
}
template <Number T>
Array array(std::initializer_list<std::initializer_list<std::initializer_list<T>>> v, const Location& at = Location::current()) {
  return detail::of_nested(v, at);
}
template <Number T>
Array array(std::initializer_list<std::initializer_list<std::initializer_list<std::initializer_list<T>>>> v,
            const Location& at = Location::current()) {
  return detail::of_nested(v, at);
}
// Of another type than the numbers: array({1, 2, 3}, f32).
template <Number T>
Array array(std::initializer_list<T> v, dsl::Type type, const Location& at = Location::current()) {
  return cast(array(v, at), type).realize();
}
template <Number T>
Array array(std::initializer_list<std::initializer_list<T>> v, dsl::Type type, const Location& at = Location::current()) {
  return cast(array(v, at), type).realize();
}

Array full(const Shape& shape, double value, DType type = DType::f32);
inline Array zeros(const Shape& shape, DType type = DType::f32) { return full(shape, 0, type); }
inline Array ones(const Shape& shape, DType type = DType::f32) { return full(shape, 1, type); }
inline Array zeros_like(const Array& x) { return full(x.shape(), 0, x.dtype()); }
inline Array ones_like(const Array& x) { return full(x.shape(), 1, x.dtype()); }
Array arange(int64_t end, DType type = DType::i64);
Array arange(double begin, double end, double step, DType type);
// Uniform in [0, 1): element i is random(seed, i) of the language. The seed may be an array, so that drawing again compiles nothing.
Array random(const Array& seed, const Shape& shape, DType type = DType::f32);

// --- Element by element; shapes broadcast by trailing dimensions ---

// An operand of a sign, and the line on which it stands.
struct Operand {
  Operand(const Array& x, const Location& line = Location::current()) : array(x), at(line) {}
  template <Number T>
  Operand(T x, const Location& line = Location::current()) : array(x), at(line) {}
  Array array;
  Location at;
};
Array operator+(const Operand& a, const Operand& b);
Array operator-(const Operand& a, const Operand& b);
Array operator*(const Operand& a, const Operand& b);
Array operator/(const Operand& a, const Operand& b);
Array operator%(const Operand& a, const Operand& b);
Array operator==(const Operand& a, const Operand& b);
Array operator!=(const Operand& a, const Operand& b);
Array operator<(const Operand& a, const Operand& b);
Array operator<=(const Operand& a, const Operand& b);
Array operator>(const Operand& a, const Operand& b);
Array operator>=(const Operand& a, const Operand& b);
Array operator&&(const Operand& a, const Operand& b);
Array operator||(const Operand& a, const Operand& b);
Array operator-(const Operand& a);
Array operator!(const Operand& a);

// Any function of the table (expr/core/ops.def) by name; those below are the same with less to write.
Array function(const char* name, std::span<const Array> operands, const Location& at = Location::current());
#define XHAT_UNARY(name) \
  inline Array name(const Array& x, const Location& at = Location::current()) { return function(#name, {&x, 1}, at); }
#define XHAT_BINARY(name)                                                                       \
  inline Array name(const Array& a, const Array& b, const Location& at = Location::current()) { \
    const Array operands[] = {a, b};                                                            \
    return function(#name, operands, at);                                                       \
  }
#include "expr/core/functions.def"

// Element i of the normal distribution with mean 0 and variance 1, and of the whole numbers from low to before high (i64, at most 2^24 of them),
// as random_normal and random_int of expr/dsl/formulas.h.
inline Array random_normal(const Array& seed, const Shape& shape, DType type = DType::f32) {
  return cast(erfinv(random(seed, shape) * 2.0F - (1 - 0x1p-24F)) * 1.41421356F, type);
}
inline Array random_int(const Array& seed, const Shape& shape, const Array& low, const Array& high) {
  return low + shift_right(cast(random(seed, shape) * 16777216.0F, DType::i64) * (high - low), Array(24));
}
Array pow(const Array& x, const Array& exponent, const Location& at = Location::current());
Array clamp(const Array& x, const Array& low, const Array& high, const Location& at = Location::current());
Array maximum(const Array& a, const Array& b, const Location& at = Location::current());
Array minimum(const Array& a, const Array& b, const Location& at = Location::current());
Array where(const Array& condition, const Array& then, const Array& otherwise, const Location& at = Location::current());
Array square(const Array& x);

// --- Reductions. keep: reduced dimensions stay, as 1 ---

#define XHAT_LAZY_REDUCTION(name) \
  Array name(const Array& x, const Axes& axes = {}, bool keep = false, const Location& at = Location::current());
XHAT_LAZY_REDUCTION(sum)  // of integers and bools: i64
XHAT_LAZY_REDUCTION(prod)
XHAT_LAZY_REDUCTION(mean)
XHAT_LAZY_REDUCTION(max)
XHAT_LAZY_REDUCTION(min)
XHAT_LAZY_REDUCTION(any)
XHAT_LAZY_REDUCTION(argmax)  // i64; over all: of the elements in row-major order
XHAT_LAZY_REDUCTION(argmin)
#undef XHAT_LAZY_REDUCTION
// max(x, 1), max(x, {0, 1}) reduce, as sum(x, 1) does; max(x, y) and max(x, 0.5f) compare elements.
#define XHAT_LAZY_EXTREME(name, of_elements)                                                                                        \
  template <std::same_as<int> I>                                                                                                    \
  Array name(const Array& x, I axis, bool keep = false, const Location& at = Location::current()) {                                 \
    return name(x, Axes{axis}, keep, at);                                                                                           \
  }                                                                                                                                 \
  inline Array name(const Array& x, std::initializer_list<int> axes, bool keep = false, const Location& at = Location::current()) { \
    return name(x, Axes(axes), keep, at);                                                                                           \
  }                                                                                                                                 \
  inline Array name(const Array& a, const Array& b, const Location& at = Location::current()) { return of_elements(a, b, at); }     \
  template <std::floating_point F>                                                                                                  \
  Array name(const Array& a, F b, const Location& at = Location::current()) {                                                       \
    return of_elements(a, Array(b), at);                                                                                            \
  }                                                                                                                                 \
  template <Number F>                                                                                                               \
  Array name(F a, const Array& b, const Location& at = Location::current()) {                                                       \
    return of_elements(Array(a), b, at);                                                                                            \
  }
XHAT_LAZY_EXTREME(max, maximum)
XHAT_LAZY_EXTREME(min, minimum)
#undef XHAT_LAZY_EXTREME
Array softmax(const Array& x, int axis = -1, const Location& at = Location::current());
Array log_softmax(const Array& x, int axis = -1, const Location& at = Location::current());

// --- Movement: index maps, no kernels ---

Array reshape(const Array& x, const Shape& shape, const Location& at = Location::current());  // one extent may be -1
Array permute(const Array& x, const std::vector<int>& order, const Location& at = Location::current());
Array transpose(const Array& x, int i = -2, int j = -1, const Location& at = Location::current());
Array expand(const Array& x, const Shape& shape, const Location& at = Location::current());  // -1: as it is
using Pairs = std::vector<std::pair<int64_t, int64_t>>;
// Per dimension: how many elements before and after. Fewer pairs than dimensions belong to the last ones.
Array pad(const Array& x, const Pairs& padding, const Array& value = 0, const Location& at = Location::current());
Array shrink(const Array& x, const Pairs& bounds, const Location& at = Location::current());  // per dimension: [begin, end)
Array flip(const Array& x, const Axes& axes = {}, const Location& at = Location::current());
Array stride(const Array& x, const std::vector<int64_t>& steps, const Location& at = Location::current());  // negative: from the end
Array squeeze(const Array& x, const Location& at = Location::current());
Array squeeze(const Array& x, int axis, const Location& at = Location::current());
Array unsqueeze(const Array& x, int axis, const Location& at = Location::current());
Array concat(const std::vector<Array>& parts, int axis = 0, const Location& at = Location::current());
template <std::same_as<Array>... Arrays>
Array concat(int axis, const Array& first, const Arrays&... others) {
  return concat(std::vector<Array>{first, others...}, axis);
}
std::vector<Array> split(const Array& x, int64_t size, int axis = 0, const Location& at = Location::current());  // pieces of that size
std::vector<Array> split(const Array& x, const std::vector<int64_t>& sizes, int axis = 0, const Location& at = Location::current());
// Element i of the result is x at indices[i] along axis: rows of a table. Indices must be in range.
Array take(const Array& x, const Array& indices, int axis = 0, const Location& at = Location::current());
// y[i][j] = x[indices[i][j]][j], for axis 0 of two.
Array gather(const Array& x, const Array& indices, int axis, const Location& at = Location::current());
inline Array gather(const Array& x, int axis, const Array& indices, const Location& at = Location::current()) {
  return gather(x, indices, axis, at);
}

// --- Products ---

Array einsum(const std::string& subscripts, const std::vector<Array>& operands, const Location& at = Location::current());
template <std::same_as<Array>... Arrays>
Array einsum(const std::string& subscripts, const Array& first, const Arrays&... others) {
  return einsum(subscripts, std::vector<Array>{first, others...});
}
// Of the last two dimensions; those before broadcast. Vectors have one dimension, as in NumPy.
Array matmul(const Array& a, const Array& b, const Location& at = Location::current());
struct ConvOptions {
  std::vector<int64_t> stride = {1}, padding = {0}, dilation = {1};  // one for all dimensions, or one each
  int64_t groups = 1;
};
// x[n, channels, ...], w[out, channels / groups, ...]; any number of spatial dimensions.
Array conv(const Array& x, const Array& w, const ConvOptions& options = {}, const Location& at = Location::current());
enum class Pool : uint8_t { max, min, sum, mean };
struct PoolOptions {
  std::vector<int64_t> stride = {};  // default: the window's size
  std::vector<int64_t> padding = {0}, dilation = {1};
};
// Windows of the last dimensions. Padding is no part of a maximum; a mean divides by the size of the window.
Array pool(const Array& x, const std::vector<int64_t>& size, Pool kind = Pool::max, const PoolOptions& options = {},
           const Location& at = Location::current());

// --- Programs and gradients ---

// An op of the language on arrays: its outputs, in order; an op with one output: that.
std::vector<Array> apply_all(const Program& program, const std::vector<Array>& arguments, const Location& at = Location::current());
Array apply(const Program& program, const std::vector<Array>& arguments, const Location& at = Location::current());

// d loss / d x, for each x; lazy. loss is one float number. An x that loss does not depend on gets zeros.
std::vector<Array> grad(const Array& loss, std::span<const Array> wrt, const Location& at = Location::current());
inline std::vector<Array> grad(const Array& loss, const std::vector<Array>& wrt, const Location& at = Location::current()) {
  return grad(loss, std::span<const Array>(wrt), at);
}
template <size_t N>
std::array<Array, N> grad(const Array& loss, const Array (&wrt)[N], const Location& at = Location::current()) {
  const std::vector<Array> found = grad(loss, std::span<const Array>(wrt), at);
  std::array<Array, N> result;
  for (size_t i = 0; i < N; ++i) result[i] = found[i];
  return result;
}

}  // namespace xhat::lazy
