// Index expressions made simple by the ranges of their axes.
//
//   (i*20 + j)/20 => i                  j in 0..20
//   (p/20)*20 + p%20 => p
//   (4*i + j)/8 => i/2                  j in 0..4
//   (4*i + j)%8 => 4*(i%2) + j
//   (h*W + w)/W => h                    w in 0..W, a dim
//   (i - i%2)/2 => i/2
//   (i%2 + 1)/2 + i/2 => (i + 1)/2
//   ((i + 2)%3 + 1)%3 => i%3
//   (i + 2*W - 1)%W => (i - 1)%W
//
// Exact. What is compared are sums with their terms collected, so equal indices mostly become equal nodes.
#pragma once
#include <span>

#include "expr/core/expr.h"

namespace xhat::fusion {

// Is there a division or a remainder of integers in it? What has none needs no simplified_index.
bool divides(const Arena& a, Id index);
Id simplified_index(Arena& a, Id index, std::span<const AxisRange> axes);

}  // namespace xhat::fusion
