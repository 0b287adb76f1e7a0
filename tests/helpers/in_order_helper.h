// Attention, and tiles so small that its sums are carried from one to the next.
#pragma once
#include "runtime/call/compile.h"

namespace xhat::testing {

inline constexpr const char* kAttention = R"(op f(q: f32[B,S,D], k: f32[B,T,D], v: f32[B,T,D]) -> (y) {
  s[b,i,j] = sum(d: q[b,i,d] * k[b,j,d]) * 0.25
  m[b,i] = stop_gradient(max(j: s[b,i,j]))
  e[b,i,j] = exp(s[b,i,j] - m[b,i])
  y[b,i,d] = sum(j: e[b,i,j] * v[b,j,d]) / sum(j: e[b,i,j])
})";

inline CompileOptions in_small_tiles(int64_t cache_bytes) {
  CompileOptions o;
  o.machine.serial_bytes = 0;
  o.machine.tile_bytes = 1024;
  o.machine.cache_bytes = cache_bytes;
  o.machine.least_tiles = 2;
  return o;
}

}  // namespace xhat::testing
