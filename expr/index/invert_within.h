// Inversion (expr/index/affine.h) of a part of the points.
#pragma once
#include "expr/index/affine.h"

namespace xhat {

// As invert, of the points where `narrowing` (bool over bound axes; kNone: everywhere) holds, too. It narrows the ranges of axes also where
// no target stands in it: of sum(i, r if i + r < 2: …) it makes sum(i in 0..2, r in 0..2-i: …).
std::optional<InvertAnswer> invert_within(Arena& a, const InvertQuestion& q, Id narrowing);

}  // namespace xhat
