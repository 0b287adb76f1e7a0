// Ops over a batch of N, for tests of how one kernel serves all its sizes.
#pragma once
#include "expr/index/dims.h"

namespace xhat::testing {

struct BatchOp {
  const char* text;
  DimValues dims;  // but for N
};

inline constexpr char kTanh[] = "op f(x: f32[N]) -> (y) { y[i] = tanh(x[i]) }";
inline constexpr char kGelu[] = R"(op f(x: f32[N,C], b: f32[C]) -> (y) {
  u[n,c] = x[n,c] + b[c]
  y[n,c] = 0.5 * u[n,c] * (1 + tanh(0.79788456 * (u[n,c] + 0.044715*u[n,c]^3)))
})";
inline constexpr char kSoftmax[] = R"(op f(x: f32[N,D]) -> (y) {
  m[n] = max(d: x[n,d]); e[n,d] = exp(x[n,d] - m[n]); y[n,d] = e[n,d] / sum(k: e[n,k])
})";
inline constexpr char kLayerNorm[] = R"(op f(x: f32[N,D], g: f32[D], b: f32[D]) -> (y) {
  mu[n] = mean(d: x[n,d]); v[n] = mean(d: (x[n,d] - mu[n])^2)
  y[n,d] = (x[n,d] - mu[n]) / sqrt(v[n] + 1e-5) * g[d] + b[d]
})";
inline constexpr char kBatchNorm[] = R"(op f(x: f32[N,C,H,W], g: f32[C], b: f32[C]) -> (y) {
  mu[c] = mean(n,h,w: x[n,c,h,w]); v[c] = mean(n,h,w: (x[n,c,h,w] - mu[c])^2)
  y[n,c,h,w] = (x[n,c,h,w] - mu[c]) / sqrt(v[c] + 1e-5) * g[c] + b[c]
})";
inline constexpr char kCrossEntropy[] = R"(op f(x: f32[N,C], label: i32[N] const) -> (loss) {
  m[n] = max(c: x[n,c]); z[n] = log(sum(c: exp(x[n,c] - m[n]))) + m[n]
  loss = mean(n: z[n] - x[n,label[n]])
})";
inline constexpr char kDense[] = R"(op f(x: f32[N,I], w: f32[I,O], b: f32[O]) -> (y) { y[n,o] = tanh(sum(i: x[n,i]*w[i,o]) + b[o]) })";
inline constexpr char kConv[] = R"(op f(x: f32[N,C,H,W], w: f32[K,C,3,3], b: f32[K]) -> (y) {
  y[n,k, i in 0..H, j in 0..W] = max(0, b[k] + sum(c,r,s: x[n,c,i+r-1,j+s-1 else 0] * w[k,c,r,s]))
})";
inline constexpr char kEmbedding[] = "op f(t: f32[V,D], ids: i32[N,L] const) -> (y) { y[n,d] = sum(l: t[ids[n,l],d]) }";
inline constexpr char kDepthwise[] = R"(op f(x: f32[N,C,H,W], w: f32[C,3,3]) -> (y) {
  y[n,c, i in 0..H, j in 0..W] = sum(r,s: x[n,c,i+r-1,j+s-1 else 0] * w[c,r,s])
})";

}  // namespace xhat::testing
