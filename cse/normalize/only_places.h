// What is read at one place of an axis is computed there.
//
//   s[n,c] = sum(k: x[n,k,c]*w[k])                s[n, c in 0..1] = sum(k: x[n,k,2]*w[k])
//   y[n] = 2*s[n,2]                       =>      y[n] = 2*s[n,0]
//
// The derivative by what all places of a short axis share, as the norm of a quaternion: each of its terms stands at a place of its own. The place
// must be a number that is inside the tensor at all sizes, and the same in all reads; narrow.h does this for ranges from 0 on.
// Exact. Needs: calls expanded. Keeps: outputs, gradients, the normal form of auto_inliner.
#pragma once
#include "expr/core/program.h"

namespace xhat {

Program at_only_places(const Program& p);

}  // namespace xhat
