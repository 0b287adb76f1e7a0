// Is 0 <= index < extent, where that takes no more than linear forms: for most questions of cse/, a proof by isl
// (expr/index/affine.h) of which takes half a millisecond, or five where ranges are made of min and max.
//
//   i in max(0,h-1)..min(H,h+2)     i - h + 1 in 0..3:  i >= h-1,  i <= h+1
//
// Neither answer is certain to be found: ask isl then.
#pragma once
#include <span>

#include "expr/core/expr.h"

namespace xhat {

// For all dims >= 0 and all points of the axes (outer ones first; ranges may use earlier axes).
bool surely_inside(const Arena& a, Id index, Id extent, std::span<const AxisRange> axes);
// Not for some dims and some point.
bool surely_outside(const Arena& a, Id index, Id extent, std::span<const AxisRange> axes);

}  // namespace xhat
