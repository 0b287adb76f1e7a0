// For tests of the classic policy.
#pragma once
#include "ad/check/random_inputs.h"
#include "expr/eval/evaluate.h"
#include "expr/index/dims.h"
#include "runtime/call/compile.h"

namespace xhat::testing {

inline const char* const kChainOfPoolings = R"(op f(x: f32[3,4*M,4*M], c: f32[3,4*M,4*M]) -> (y) {
  d[k,i,j] = x[k,i,j] / c[k,i,j]
  m[k,i,j] = d[k,i,j] * 2
  r[k,i,j] = relu(m[k,i,j])
  p[k, i in 0..2*M, j in 0..2*M] = max(u in 0..2, v in 0..2: r[k,2*i+u,2*j+v])
  s[k,i,j] = relu(p[k,i,j])
  q[k, i in 0..M, j in 0..M] = max(u in 0..2, v in 0..2: s[k,2*i+u,2*j+v])
  y[k,i,j] = relu(q[k,i,j])
})";
inline const char* const kTwoReductions = "op f(x: f32[N,D]) -> (y) { s[n] = sum(d: x[n,d]); m[n] = max(d: x[n,d]); y[n] = s[n] + m[n] }";

inline CompileOptions relay() {
  CompileOptions o;
  o.fusion.policy = FusePolicy::relay;
  o.threads = 1;
  return o;
}

// Inputs, integers within 0..3, and cotangents.
inline Arrays data_for(const Program& derived, const DimValues& dims) {
  Arrays data;
  for (const auto* list : {&derived.inputs, &derived.cotangents})
    for (TensorId t : *list) {
      const Tensor& x = derived.tensor(t);
      Array a = zeros(x.type, shape_of(derived, t, dims));
      if (a.real()) a = random_normals(x.type, shape_of(derived, t, dims), 7 + data.size());
      for (size_t i = 0; i < a.integers.size(); ++i) a.integers[i] = static_cast<int64_t>(i * 7 % 4);
      data[x.name] = a;
    }
  return data;
}

}  // namespace xhat::testing
