// Operations that round nothing, and those whose operands may be exchanged.
#pragma once
#include "expr/core/expr.h"

namespace xhat {

// Results are one of the operands, or have its digits.
constexpr bool is_exact(Op op) {
  return op == Op::neg || op == Op::abs || op == Op::select || op == Op::minimum || op == Op::maximum || op == Op::clamp ||
         op == Op::relu || op == Op::sign || op == Op::floor || op == Op::ceil || op == Op::round || op == Op::trunc || op == Op::copysign ||
         op == Op::stop_gradient;
}

// Is x op y the same as y op x?
constexpr bool operands_commute(Op op) {
  return op == Op::add || op == Op::mul || op == Op::maximum || op == Op::minimum || op == Op::eq || op == Op::ne || op == Op::land ||
         op == Op::lor;
}

}  // namespace xhat
