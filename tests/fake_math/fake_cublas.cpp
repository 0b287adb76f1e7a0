#include "tests/fake_math/fake_math.h"

using namespace fake_math;
using xhat::DType;

namespace {

State state;
enum Status : int { kOk = 0, kNotInitialized = 1, kInvalidValue = 7, kNotSupported = 15 };
bool with_workspace = false;

bool type_of(int cuda, DType& type) {
  switch (cuda) {
    case 0: type = DType::f32; return true;
    case 1: type = DType::f64; return true;
    case 2: type = DType::f16; return true;
    case 14: type = DType::bf16; return true;
    default: return false;
  }
}

}  // namespace

extern "C" {

State* fake_cublas_state() { return &state; }

const char* cublasGetStatusString(int status) {
  return status == kInvalidValue ? "CUBLAS_STATUS_INVALID_VALUE" : "CUBLAS_STATUS_EXECUTION_FAILED";
}

int cublasCreate_v2(void** handle) {
  ++state.handles;
  *handle = &state;
  return kOk;
}

int cublasSetStream_v2(void* handle, void* stream) {
  if (handle != &state) return kNotInitialized;
  state.stream = stream;
  with_workspace = false;  // as documented
  return kOk;
}

int cublasSetWorkspace_v2(void* handle, void* memory, size_t bytes) {
  if (handle != &state) return kNotInitialized;
  with_workspace = memory && bytes > 0;
  return reinterpret_cast<uintptr_t>(memory) % 128 == 0 ? kOk : kInvalidValue;
}

int cublasSetMathMode(void* handle, int mode) {
  if (handle != &state) return kNotInitialized;
  state.math = mode;
  return kOk;
}

int cublasGemmStridedBatchedEx(void* handle, int op_a, int op_b, int m, int n, int k, const void* alpha, const void* a, int type_a, int lda,
                               long long step_a, const void* b, int type_b, int ldb, long long step_b, const void* beta, void* c,
                               int type_c, int ldc, long long step_c, int count, int compute, int) {
  if (handle != &state) return kNotInitialized;
  if (state.fail) return state.fail;
  DType ta, tb, tc;
  if (!type_of(type_a, ta) || !type_of(type_b, tb) || !type_of(type_c, tc) || ta != tb) return kNotSupported;
  const bool wide = ta == DType::f64;
  if (compute != (wide ? 70 : 68) || wide != (tc == DType::f64)) return kNotSupported;
  if (ta == DType::f32 && tc != DType::f32) return kNotSupported;
  auto least = [](int operation, int rows, int columns) { return operation == 0 ? rows : columns; };
  if (m < 0 || n < 0 || k < 0 || lda < least(op_a, m, k) || ldb < least(op_b, k, n) || ldc < m || !with_workspace) return kInvalidValue;
  ++state.calls;
  state.last_operations[0] = op_a;
  state.last_operations[1] = op_b;
  auto number = [&](const void* p) { return wide ? *static_cast<const double*>(p) : static_cast<double>(*static_cast<const float*>(p)); };
  for (int64_t x = 0; x < count; ++x)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t t = 0; t < k; ++t) {
          const int64_t at_a = op_a == 0 ? i + t * lda : t + i * lda, at_b = op_b == 0 ? t + j * ldb : j + t * ldb;
          sum += load(a, ta, x * step_a + at_a) * load(b, tb, x * step_b + at_b);
        }
        const double old = number(beta) == 0 ? 0 : number(beta) * load(c, tc, x * step_c + i + j * ldc);
        save(c, tc, x * step_c + i + j * ldc, number(alpha) * sum + old);
      }
  return kOk;
}
}
