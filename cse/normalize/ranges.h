// The ranges of axes, before reductions are lifted: one per name, of a size that kernels know, boxes where that is easy.
#pragma once
#include <optional>

#include "expr/core/program.h"
#include "expr/index/hull.h"

namespace xhat {

// Of all axes of a definition's body.
Ranges ranges_in(const Arena& a, const Definition& d, Id body);
bool has_axis(const Arena& a, Id e, Id axis);
bool is_box(const Arena& a, const AxisRange& r);  // no axis in it
// An integer that the program says.
std::optional<int64_t> literal(const Arena& a, Id e);
// c of an axis in c..c+1.
std::optional<int64_t> only_point(const Arena& a, const AxisRange& r);
// begin <= axis && axis < end
Id within(Arena& a, const AxisRange& r);

// j in 0..i64(sqrt(f32(i))) runs over a box, and the range is a condition.
Id with_plain_ranges(Arena& a, const Definition& d, Id body);

// c in 8*g..8*g+8 becomes c in 0..8 at 8*g + c: a kernel visits what there is, and no more. With reductions inside that
// depend on c and g, the tensors that they become are small; where they depend on c alone, they are smaller as it was.
// for_what_is_inside: only what makes these smaller.
Id boxed(Arena& a, Id body, bool for_what_is_inside);

// An argmax or argmin over a range that begins at 0, as kernels walk it, for what they find is the place on that walk:
//   argmax(k in b..e: x[k])   =>   b + argmax(k in 0..e-b: x[k+b])
Id arguments_from_zero(Arena& a, Id body);

// Axes that stay, at other positions.
Id shifted(Arena& a, Id e, const Replacements& shift);

}  // namespace xhat
