// Sums of sums become one sum, and terms that a condition makes neutral are left out.
//
//   r[n] = sum(w: x[n,w])/W   y = sum(n: r[n])/N            =>     y = sum(n,w: x[n,w])/W/N
//   y[n] = prod(k: if k <= n then x[k] else 1)              =>     y[n] = prod(k if k <= n: x[k])
//
// A sum that is written inside of another, or in a definition that only this other one reads: as it stands, times numbers, and in a mean times
// and divided by numbers and dims. (With another factor in between the values that are added up would be others.) Every inner sum must be added to one
// outer sum only. One reduction and its tensor less; the backward of a sum reads neither.
// Conditions on positions only, of which gather makes ranges, and such as data name one position by: k == i64(t[n]).
// Exact but for the order of addition, which sums leave open, and for the rounding of factors that come out; f16 and bf16, which are rounded
// where a sum ends, stay.
// Needs: calls expanded. Keeps: outputs.
#pragma once
#include "expr/core/program.h"

namespace xhat {

Program without_nested_sums(const Program& p);
Program without_neutral_terms(const Program& p);

}  // namespace xhat
