// What the kernels by hand share: vectors of simd.h, tiles on all threads, stores past the cache. What one would write who
// knows the op and the machine: the measure of what a generated kernel can reach.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "bench/compare/simd.h"
#include "bench/compare/tensor_op.h"

namespace xhat::bench::hand {

constexpr auto kStep = static_cast<int64_t>(kLanes);
constexpr int64_t kTile = 16384;                  // elements, 64 kB
constexpr int64_t kMaxColumns = 4096;            // of a row that is kept on the stack
constexpr int64_t kStreamed = int64_t{32} << 20;  // bytes of a call from which on results go past the cache

// Threads take the next one when they are done; what they wrote past the cache is there when all are.
template <class F>
void tiles(int64_t n, F f) {
#pragma omp parallel
  {
#pragma omp for schedule(dynamic) nowait
    for (int64_t i = 0; i < n; ++i) f(i);
    fence();
  }
}

// f(stream) with a constant: whether the results go past the cache.
template <class F>
auto streamed(int64_t bytes, F f) {
  if (bytes > kStreamed)
    f(std::true_type());
  else
    f(std::false_type());
}

template <bool kStream>
void put(float* p, V v) {
  if constexpr (kStream)
    stream(p, v);
  else
    store(p, v);
}

// e^x, 0 below -87: rounding by a large number, whose low bits then are the exponent.
inline V exp_of(V x) {
  const V magic = set(12582912.0f);
  x = clamp(x, set(-87.0f), set(88.0f));
  V t = fma(x, set(1.44269504f), magic), n = t - magic;
  V r = fma(n, set(-0.693147182f), x);
  r = fma(n, set(1.90465421e-9f), r);
  V p = set(1.39464985e-3f);
  for (float c : {8.36661085e-3f, 4.16662805e-2f, 1.66665435e-1f, 0.5f, 1.0f, 1.0f}) p = fma(p, r, set(c));
  return times_power_in(p, t);
}

// x P(x^2)/Q(x^2), as Eigen and XLA do, with coefficients of tools/fit_vector_math.py.
inline V tanh_of(V x) {
  V t = min(x * x, set(81.36f)), p = set(1.33837492e-8f), q = set(7.79003187e-7f);
  for (float c : {2.06354471e-5f, 0.00349743548f, 0.133826688f, 1.0f}) p = fma(p, t, set(c));
  for (float c : {0.000328848051f, 0.0258842781f, 0.467159897f, 1.0f}) q = fma(q, t, set(c));
  return clamp(x * (p / q), set(-1), set(1));
}

inline float sum(V v) {
  alignas(64) float lanes[kLanes];
  store(lanes, v);
  float s = 0;
  for (float x : lanes) s += x;
  return s;
}

inline float most(V v) {
  alignas(64) float lanes[kLanes];
  store(lanes, v);
  return *std::max_element(lanes, lanes + kLanes);
}

// The sum of term(i) for i = 0, kStep, ... below n, a multiple of kStep; several sums at a time, as one is as slow as additions
// one after the other.
template <class F>
V sum_of(int64_t n, F term) {
  V s[4] = {set(0), set(0), set(0), set(0)};
  int64_t i = 0;
  for (; i + 4 * kStep <= n; i += 4 * kStep)
    for (int64_t k = 0; k < 4; ++k) s[k] += term(i + k * kStep);
  for (; i < n; i += kStep) s[0] += term(i);
  return (s[0] + s[1]) + (s[2] + s[3]);
}

// What n elements are normalized by.
constexpr float kEps = 1e-5f;
struct Moments {
  float mean, scale;  // 1 / sqrt(variance + kEps)
};
inline Moments moments_of(const float* x, int64_t n) {
  const float count = static_cast<float>(n), mean = sum(sum_of(n, [&](int64_t i) { return load(x + i); })) / count;
  V squares = sum_of(n, [&](int64_t i) {
    V d = load(x + i) - set(mean);
    return d * d;
  });
  return {mean, 1 / std::sqrt(sum(squares) / count + kEps)};
}

// Leaves the op out unless all of this holds: these kernels have no tails but where they say so.
void whole_vectors(std::initializer_list<int64_t> sizes);

Loaders pointwise_loaders();  // hand_pointwise.cpp
Loaders row_loaders();        // hand_rows.cpp
Loaders channel_loaders();    // hand_channels.cpp
Loaders image_loaders();      // hand_images.cpp

}  // namespace xhat::bench::hand
