// Sums of products with what they share in front, before they are derived:
//
//   g*x*r - g*m*r + b   =>   g*r*(x - m) + b
//
// What was multiplied out has a gradient of as many parts, each with a sum of its own over what its factors lack. Only the derivation sees it: the
// forward stays as it was written. Real-only; looks into sums, products and quotients, not into what decides or rounds.
#pragma once
#include "expr/core/expr.h"

namespace xhat {

Id with_common_factors(Arena& a, Id body);

}  // namespace xhat
