// Element types as Halide's runtime describes them. Includes HalideRuntime.h only, not the compiler.
#pragma once
#include "HalideRuntime.h"
#include "expr/core/dtype.h"
#include "expr/core/error.h"
#include "runtime/host/size_value.h"

namespace xhat::runtime {

inline halide_type_t element_type(DType t) {  // bool is stored as u8
  switch (t) {
    case DType::f64: return {halide_type_float, 64};
    case DType::f32: return {halide_type_float, 32};
    case DType::i64: return {halide_type_int, 64};
    case DType::i32: return {halide_type_int, 32};
    case DType::u8:
    case DType::boolean: return {halide_type_uint, 8};
    case DType::f16: return {halide_type_float, 16};
    case DType::bf16: return {halide_type_bfloat, 16};
    case DType::u32: return {halide_type_uint, 32};
  }
  throw Bug("unknown dtype");
}

}  // namespace xhat::runtime
