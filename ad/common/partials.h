// The derivative column of ops.def, multiplied onto an adjoint. It is read when the first derivative is asked for.
#pragma once
#include <span>

#include "ad/common/guards.h"

namespace xhat {

// adjoint * (d result / d operand).
struct Scaled {
  Id value = kNone;       // kNone: exactly zero everywhere
  Literals guards;        // zero unless all hold; value may be anything where one does not
  Literals implied;       // value is zero already where one of these fails
  bool number = false;    // the partial is one, of dims at most
  bool singular = false;  // the partial can be infinite or NaN at finite operands (1/a, log, a^-1/2, exp)
};

// "0" for this operand (or an op without partials).
bool partial_is_zero(Op op, size_t operand);
Scaled scale_by_partial(Arena& a, Id adjoint, Op op, size_t operand, std::span<const Id> args, Id result);

}  // namespace xhat
