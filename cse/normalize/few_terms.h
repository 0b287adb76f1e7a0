// A sum over a few places that its choices tell apart becomes its terms.
//
//   grad_a[n] = sum(c in 0..2: if c == 0 then b[n,0]*dy[n,c] else b[n,1]*dy[n,c])     =>     grad_a[n] = b[n,0]*dy[n,0] + b[n,1]*dy[n,1]
//
// The derivative of what is stacked by an `if` on a position: real and imaginary parts, the rows of a rotation, the two halves of a pair. Each such
// choice is made where the place is known. The range has at most four places, whose numbers the program says, and an `if` of the body or the
// sum's condition compares its axis with a number. Other axes of the sum stay, until it is asked again.
// An axis that has one point, of a sum or of a definition, is that point where it stands: grad_b[n,c in 0..1] = dy[n,c+2] reads dy[n,2].
// Exact but for the order of addition, which sums leave open; f16 and bf16, which are rounded where a sum ends, stay.
// Needs: calls expanded. Keeps: outputs.
#pragma once
#include "expr/core/program.h"

namespace xhat {

Program with_few_terms(const Program& p);

}  // namespace xhat
