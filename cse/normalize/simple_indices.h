// Divisions in indices that the ranges of axes decide are done: x[(h*W + w)/W] is x[h] where w is in 0..W, and v[n,(4*g + c)/4] is v[n,g]
// where c is in 0..4.
//
// A read that the ranges keep inside its tensor loses its `else`: x[n,2 else 0] of f32[N,3] is x[n,2].
//
// A choice between a condition and true or false, all of which the ranges keep inside, is no choice: if o[g] <= t then x[t] == m[g] else false
// is o[g] <= t && x[t] == m[g].
//
// So what stands under other axes, because a user flattened them or a scatter was solved, reads what it reads by the same indices, and a
// factor of a sum is seen to be one.
// Exact. Keeps the normal form of auto_inliner.
#pragma once
#include "expr/core/program.h"

namespace xhat {

Program with_simple_indices(const Program& p);

// Of what is divided, and in conditions too: sum(w if ((w - 1)%W - 1)%W == i: x[w]) is solved by gather, which takes one remainder apart. Others
// stay as they are written, for it sees more in them: in (t + 1 - 2*r)/2 == i how t follows r.
Program without_nested_divisions(const Program& p);

// Positions are compared as positions: labels[n] == i32(d) is i64(labels[n]) == d, and labels[n] - d == 0 is labels[n] == d.
// What stands for them then is found by gather. An axis that begins
// at 0 ends below 2^31, or nothing runs. Exact.
Program with_plain_positions(const Program& p);

}  // namespace xhat
