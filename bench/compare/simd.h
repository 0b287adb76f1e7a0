// One vector register of floats, and exp of it, for roofline.cpp and the kernels by hand: AVX-512 or AVX2, whichever the
// compiler is told to use. Sums and products are GCC's operators of vectors.
//
// exp: 2^n * p(r) with x = n*ln2 + r. The polynomial is that of Cephes' expf (S. Moshier), as in Eigen and many others;
// about 1 ulp. Inputs are clamped to where the result is a normal number.
#pragma once
#include <immintrin.h>

#include <cstddef>

namespace xhat::bench {

#if defined(__AVX512F__)
using V = __m512;
constexpr size_t kLanes = 16;
constexpr const char* kIsa = "avx512f";
inline V set(float x) { return _mm512_set1_ps(x); }
inline V load(const float* p) { return _mm512_load_ps(p); }
inline void store(float* p, V v) { _mm512_store_ps(p, v); }
inline void stream(float* p, V v) { _mm512_stream_ps(p, v); }
inline V load_unaligned(const float* p) { return _mm512_loadu_ps(p); }
inline void store_unaligned(float* p, V v) { _mm512_storeu_ps(p, v); }
inline V max(V a, V b) { return _mm512_max_ps(a, b); }
inline V min(V a, V b) { return _mm512_min_ps(a, b); }
inline V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
inline V round(V x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline V times_power_of_2(V x, V n) { return _mm512_scalef_ps(x, n); }
#elif defined(__AVX2__) && defined(__FMA__)
using V = __m256;
constexpr size_t kLanes = 8;
constexpr const char* kIsa = "avx2+fma";
inline V set(float x) { return _mm256_set1_ps(x); }
inline V load(const float* p) { return _mm256_load_ps(p); }
inline void store(float* p, V v) { _mm256_store_ps(p, v); }
inline void stream(float* p, V v) { _mm256_stream_ps(p, v); }
inline V load_unaligned(const float* p) { return _mm256_loadu_ps(p); }
inline void store_unaligned(float* p, V v) { _mm256_storeu_ps(p, v); }
inline V max(V a, V b) { return _mm256_max_ps(a, b); }
inline V min(V a, V b) { return _mm256_min_ps(a, b); }
inline V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
inline V round(V x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline V times_power_of_2(V x, V n) {
  return x * _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
#else
// Any x86-64: its figures say little of what engines reach that compile for the machine at hand.
using V = __m128;
constexpr size_t kLanes = 4;
constexpr const char* kIsa = "sse2";
inline V set(float x) { return _mm_set1_ps(x); }
inline V load(const float* p) { return _mm_load_ps(p); }
inline void store(float* p, V v) { _mm_store_ps(p, v); }
inline void stream(float* p, V v) { _mm_stream_ps(p, v); }
inline V load_unaligned(const float* p) { return _mm_loadu_ps(p); }
inline void store_unaligned(float* p, V v) { _mm_storeu_ps(p, v); }
inline V max(V a, V b) { return _mm_max_ps(a, b); }
inline V min(V a, V b) { return _mm_min_ps(a, b); }
inline V fma(V a, V b, V c) { return a * b + c; }
inline V round(V x) { return _mm_cvtepi32_ps(_mm_cvtps_epi32(x)); }
inline V times_power_of_2(V x, V n) {
  return x * _mm_castsi128_ps(_mm_slli_epi32(_mm_add_epi32(_mm_cvtps_epi32(n), _mm_set1_epi32(127)), 23));
}
#endif

using Bits [[gnu::vector_size(sizeof(V))]] = int;

inline V clamp(V x, V low, V high) { return min(max(x, low), high); }

// x 2^n for the n in the low bits of t.
inline V times_power_in(V x, V t) { return reinterpret_cast<V>(reinterpret_cast<Bits>(x) + (reinterpret_cast<Bits>(t) << 23)); }

inline void fence() { _mm_sfence(); }  // non-temporal stores are done after it

inline V exp(V x) {
  x = clamp(x, set(-87.3f), set(88.3f));
  V n = round(x * set(1.44269504f));
  V r = fma(n, set(-0.693359375f), x);  // ln2 in two parts, the first exact in few bits
  r = fma(n, set(2.12194440e-4f), r);
  V p = set(1.9875691500e-4f);
  for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f, 1.0f, 1.0f})
    p = fma(p, r, set(c));
  return times_power_of_2(p, n);
}

}  // namespace xhat::bench
