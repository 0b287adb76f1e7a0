// Which reductions may be computed in parts that are put together afterwards.
#pragma once
#include "expr/core/expr.h"

namespace xhat {

// Sums may be reassociated by the language; extremes and integers give the same bits in any order. A product of floats is multiplied up
// in the order of its axes: 1e30 * 1e-30 * 1e30 * … stays within the type's range, where the product of every second factor does not.
// An argmax takes the first of equals, and nobody puts the places that parts found together.
constexpr bool combines_in_parts(Op reduction, DType type) {
  if (reduction == Op::prod) return !is_float(type);
  return reduction != Op::argmax && reduction != Op::argmin;
}

}  // namespace xhat
