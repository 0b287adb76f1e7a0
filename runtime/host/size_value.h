// A size that is passed to kernels as a number, in the type that they read; and quantities of a launch that follow from it.
#pragma once
#include <span>

#include "expr/core/dtype.h"

namespace xhat::runtime {

union SizeValue {
  double wide;
  float narrow;
  int32_t count;
};
inline SizeValue size_value(DType type, double value) {
  SizeValue v = {value};
  if (type == DType::f32) v.narrow = static_cast<float>(value);
  if (type == DType::i32) v.count = static_cast<int32_t>(value);
  return v;
}

// A quantity of a launch (blocks, threads, bytes) that may depend on a size v given at the launch: times * (factor * v / per) / of, each division
// rounded up.
struct Amount {
  int64_t times = 1, factor = 1, per = 1, of = 1;
  int64_t value = -1;  // v is this one of the kernel's values, a count; -1: v = 1
  int64_t at(std::span<const SizeValue> values) const {
    int64_t v = value < 0 ? 1 : values[static_cast<size_t>(value)].count;
    return (times * ((factor * v + per - 1) / per) + of - 1) / of;
  }
  bool operator==(const Amount&) const = default;
};

}  // namespace xhat::runtime
