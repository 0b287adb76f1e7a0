// A size as a number that kernels read, in the type that they read it in; and what follows from it when they are launched.
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

// A number that may follow from one that comes with a launch: times * (factor * v / per) / of, each division rounded up.
struct Amount {
  int64_t times = 1, factor = 1, per = 1, of = 1;
  int64_t value = -1;  // v: which of the kernel's values, a count; -1: 1
  int64_t at(std::span<const SizeValue> values) const {
    int64_t v = value < 0 ? 1 : values[static_cast<size_t>(value)].count;
    return (times * ((factor * v + per - 1) / per) + of - 1) / of;
  }
  bool operator==(const Amount&) const = default;
};

}  // namespace xhat::runtime
