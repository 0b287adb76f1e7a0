// What an extreme is subtracted from is computed as the extreme was: x - max(x) is at most 0, whatever was rounded on the way.
//
//   b[j] = max(i: -c[i,j] - (a[i] + log(r[i])))
//   exp(-c[i,j] - a[i] - b[j] - log(r[i]))    =>    exp(-c[i,j] - (a[i] + log(r[i])) - b[j])
//
// The normal form knows sums of terms, in its own order. Where a sum has an extreme, and with the other sign all terms of what that is
// taken of, these come first, as they are written there. So the difference has an error of its own rounding, not of a rounding of the
// operand, which may be large where the difference is about 1.
//
// An extreme: max and min over axes, of two, clamp, what floor, ceil, round and trunc make whole, and a choice among those.
#pragma once
#include <set>

#include "expr/core/program.h"

namespace xhat {

// In the backward, and in definitions of the forward that are not among these. Real-only. What decides a branch stays as it is.
Program with_whole_differences(const Program& p, const std::set<TensorId>& written);

}  // namespace xhat
