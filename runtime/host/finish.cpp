#include "runtime/host/finish.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace xhat::runtime {
namespace {

template <class T>
T identity(Op op) {
  using L = std::numeric_limits<T>;
  switch (op) {
    case Op::prod:
    case Op::all: return T(1);
    case Op::max: return L::has_infinity ? -L::infinity() : L::lowest();
    case Op::min: return L::has_infinity ? L::infinity() : L::max();
    default: return T(0);
  }
}

template <class T>
T combined(Op op, T a, T b) {
  switch (op) {
    case Op::sum:
      if constexpr (std::is_integral_v<T>)
        return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
      else
        return a + b;
    case Op::prod:
      if constexpr (std::is_integral_v<T>)
        return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
      else
        return a * b;
    case Op::max: return a != a ? a : b != b ? b : std::max(a, b);
    case Op::min: return a != a ? a : b != b ? b : std::min(a, b);
    case Op::any: return static_cast<T>(a || b);
    case Op::all: return static_cast<T>(a && b);
    default: return a;
  }
}

// Elements of f16 and bf16, stored as bits.
struct Half {
  uint16_t bits;
  explicit Half(double v) : bits(f16_bits(v)) {}
  explicit operator double() const { return f16_value(bits); }
};
struct BFloat {
  uint16_t bits;
  explicit BFloat(double v) : bits(bf16_bits(v)) {}
  explicit operator double() const { return bf16_value(bits); }
};

// f(i) for i in 0..m, mostly in loops of known length, which become vectors.
template <class F>
void each_of(int64_t m, const F& f) {
  constexpr int64_t kLanes = 8;
  int64_t i = 0;
  for (; i + kLanes <= m; i += kLanes)
    for (int64_t k = 0; k < kLanes; ++k) f(i + k);
  for (; i < m; ++i) f(i);
}

// total[i] += the elements i of one row, or of four that are n elements apart, one after the other.
template <int kRows, class A, class P>
void add_rows(A* __restrict total, const P* __restrict row, int64_t n, int64_t m) {
  static_assert(kRows == 1 || kRows == 4);
  each_of(m, [=](int64_t i) {
    auto at = [&](int64_t r) { return static_cast<A>(row[r * n + i]); };
    if constexpr (kRows == 1)
      total[i] += at(0);
    else
      total[i] = total[i] + at(0) + at(1) + at(2) + at(3);
  });
}

// A: the accumulator's type, double for floats. That costs nothing for some hundred partial results, and keeps their last digits.
template <class T, class A, class P = T>
void combine(Op op, const void* partials, int64_t rows, const TensorView& out, int64_t begin, int64_t end) {
  constexpr int64_t kBlock = 512;  // elements whose accumulators stay in L1
  int64_t n = out.elements();
  A total[kBlock];
  auto* target = static_cast<T*>(out.data);
  auto* partial = static_cast<const P*>(partials);
  for (int64_t first = begin; first < end; first += kBlock) {
    int64_t m = std::min(kBlock, end - first);
    std::fill(total, total + m, identity<A>(op));
    if (op == Op::sum && std::is_floating_point_v<A>) {
      int64_t r = 0;
      for (; r + 4 <= rows; r += 4) add_rows<4>(total, partial + r * n + first, n, m);
      for (; r < rows; ++r) add_rows<1>(total, partial + r * n + first, n, m);
    } else {
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < m; ++i) total[i] = combined<A>(op, total[i], static_cast<A>(partial[r * n + first + i]));
    }
    if (out.dense()) {
      each_of(m, [&](int64_t i) { target[first + i] = static_cast<T>(total[i]); });
    } else {
      for_each_offset(out, [&](int64_t i, int64_t offset) {
        if (i >= first && i < first + m) target[offset] = static_cast<T>(total[i - first]);
      });
    }
  }
}

template <class T, class A = T>
void add(const TensorView& target, const TensorView& value) {
  auto* __restrict t = static_cast<T*>(target.data);
  const auto* __restrict v = static_cast<const T*>(value.data);
  auto sum = [](T a, T b) { return static_cast<T>(static_cast<A>(a) + static_cast<A>(b)); };
  if (target.dense() && value.dense()) {
    const int64_t n = target.elements();
    constexpr int64_t kBlock = 16;  // a loop of known length, which becomes vectors
    int64_t i = 0;
    for (; i + kBlock <= n; i += kBlock)
      for (int64_t k = 0; k < kBlock; ++k) t[i + k] = sum(t[i + k], v[i + k]);
    for (; i < n; ++i) t[i] = sum(t[i], v[i]);
    return;
  }
  // value is one of our temporaries, so it is dense.
  for_each_offset(target, [&](int64_t i, int64_t offset) { t[offset] = sum(t[offset], v[i]); });
}

}  // namespace

void combine_partials(Op op, const void* p, int64_t rows, const TensorView& out, int64_t first, int64_t last) {
  switch (out.type) {
    case DType::f64: return combine<double, double>(op, p, rows, out, first, last);
    case DType::f32: return combine<float, double>(op, p, rows, out, first, last);
    case DType::f16: return combine<Half, double, float>(op, p, rows, out, first, last);
    case DType::bf16: return combine<BFloat, double, float>(op, p, rows, out, first, last);
    case DType::i64: return combine<int64_t, int64_t>(op, p, rows, out, first, last);
    case DType::i32: return combine<int32_t, int64_t>(op, p, rows, out, first, last);
    case DType::u32: return combine<uint32_t, int64_t>(op, p, rows, out, first, last);
    case DType::u8:
    case DType::boolean: return combine<uint8_t, int64_t>(op, p, rows, out, first, last);
  }
  throw Bug("unknown dtype");
}

void add_into(const TensorView& target, const TensorView& value) {
  switch (target.type) {
    case DType::f64: return add<double>(target, value);
    case DType::f32: return add<float>(target, value);
    case DType::f16: return add<Half, double>(target, value);
    case DType::bf16: return add<BFloat, double>(target, value);
    default: throw Bug("only floats have gradients");
  }
}

void add_into(const TensorView& target, const TensorView& value, ThreadPool& pool) {
  constexpr int64_t kSlice = 16384;  // elements
  const int64_t n = target.elements(), slices = (n + kSlice - 1) / kSlice;
  if (slices < 2 || !target.dense()) return add_into(target, value);
  auto part = [&](const TensorView& v, int64_t i) {
    const int64_t begin = i * kSlice;
    return TensorView(static_cast<char*>(v.data) + begin * static_cast<int64_t>(byte_size(v.type)), v.type,
                      std::array{std::min(kSlice, n - begin)}, {});
  };
  auto task = [&](int, int64_t i) { add_into(part(target, i), part(value, i)); };
  pool.run(slices, task);
}

}  // namespace xhat::runtime
