// Comparisons by which data bound the places along an axis, as offsets bound those of a segment: o[s] <= t && t < o[s+1].
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "expr/core/expr.h"

namespace xhat {

// By how much the index changes from one element of an axis to the next; none if that differs, or is not known.
std::optional<int64_t> step_along(Arena& a, Id index, Id axis);

// Does the condition compare a place with data: o[g] <= t, ids[e] == n? It holds along runs of places, and seldom.
bool compares_place_with_data(const Arena& a, Id condition);

// Is it such a comparison, by which data bound the places along the axis, on one side?
bool is_end_by_data(Arena& a, Id condition, Id axis);

// Do data that differ along some of `by` bound the places along the axis on both sides? Then few pairs
// of a place and what is along `by` are there.
bool in_segments(Arena& a, Id condition, Id places, std::span<const Id> by);

}  // namespace xhat
