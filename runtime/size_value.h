// A size as a number that kernels read, in the type that they read it in.
#pragma once
#include "expr/dtype.h"

namespace xhat::runtime {

union SizeValue {
  double wide;
  float narrow;
};
inline SizeValue size_value(DType type, double value) {
  SizeValue v = {value};
  if (type == DType::f32) v.narrow = static_cast<float>(value);
  return v;
}

}  // namespace xhat::runtime
