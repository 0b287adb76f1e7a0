// Values that are 0, or false, nearly everywhere: gradients of an extreme, which go where a term equals it. Sums of them ask where they are not, and
// compute nothing elsewhere.
#pragma once
#include <functional>

#include "expr/core/program.h"

namespace xhat {

// Of a value that is 0 nearly everywhere: where it may be something else; kNone of any other value. A comparison for equality of two floats from
// memory is false nearly everywhere, for few are equal by chance. is_zero: of a tensor, whether nearly all of its elements are 0.
Id where_not_zero(Arena& a, Id value, const std::function<bool(TensorId)>& is_zero);

// Sets Tensor::mostly_zero of what the program's definitions say that of.
void mark_mostly_zero(Program& p);

}  // namespace xhat
