// Sums of sums become one sum.
//
//   r[n] = sum(w: x[n,w])   y = sum(n: r[n])     =>     y = sum(n,w: x[n,w])
//
// A sum that is written inside of another, or in a definition that only this other one reads, and reads as it stands: with a factor in between
// the values that are added up would be others; and every inner sum must be added to one outer sum only. One reduction and its tensor less; the backward of a sum reads neither.
// Exact but for the order of addition, which sums leave open; f16 and bf16, which are rounded where a sum ends, stay.
// Needs: calls expanded. Keeps: outputs.
#pragma once
#include "expr/core/program.h"

namespace xhat {

Program without_nested_sums(const Program& p);

}  // namespace xhat
