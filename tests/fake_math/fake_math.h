// cuBLAS and cuDNN for tests on machines without a GPU: libfake_cublas.so and libfake_cudnn.so, which the environment variables
// XHAT_CUBLAS_LIBRARY and XHAT_CUDNN_LIBRARY name. They compute by plain loops, on memory of the host, from the arguments that the
// libraries document, and refuse what these refuse.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "expr/core/dtype.h"

namespace fake_math {

// What tests see and set.
struct State {
  int fail = 0;  // status of the next calls; 0: they work
  int64_t handles = 0, calls = 0;
  void* stream = nullptr;  // of the last call
  int last_operations[2] = {0, 0};
  int math = -1;  // what was last asked for
  bool nothing_fits = false;  // cuDNN: no algorithm
};

inline double load(const void* p, xhat::DType type, int64_t i) {
  switch (type) {
    case xhat::DType::f32: return static_cast<double>(static_cast<const float*>(p)[i]);
    case xhat::DType::f64: return static_cast<const double*>(p)[i];
    case xhat::DType::f16: return xhat::f16_value(static_cast<const uint16_t*>(p)[i]);
    case xhat::DType::bf16: return xhat::bf16_value(static_cast<const uint16_t*>(p)[i]);
    default: return NAN;
  }
}
inline void save(void* p, xhat::DType type, int64_t i, double v) {
  switch (type) {
    case xhat::DType::f32: static_cast<float*>(p)[i] = static_cast<float>(v); break;
    case xhat::DType::f64: static_cast<double*>(p)[i] = v; break;
    case xhat::DType::f16: static_cast<uint16_t*>(p)[i] = xhat::f16_bits(v); break;
    case xhat::DType::bf16: static_cast<uint16_t*>(p)[i] = xhat::bf16_bits(v); break;
    default: break;
  }
}

}  // namespace fake_math
