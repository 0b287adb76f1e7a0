// Sets of elements: { (index_0, index_1, …) : axes in their ranges, conditions hold }, all sizes being numbers. Which box
// they span, how many they are, whether one set lies in another: footprints, halos and overlaps are questions of this kind.
//
// Conditions that are out of isl's reach count as "may hold", and a number that data decide is any number within the
// bounds given: the sets are then larger than the truth, never smaller.
#pragma once
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "expr/core/expr.h"

namespace xhat {

struct ElementSet {
  std::vector<AxisRange> axes;   // ranges without dims, in order of nesting
  std::vector<Id> conditions;    // bool
  std::vector<Id> indices;       // i64, over the axes
  std::vector<std::pair<int64_t, int64_t>> within = {};  // if given: per index, first and last
};

using Box = std::vector<std::pair<int64_t, int64_t>>;  // per index, first and last
// Of the union of the sets, which have equally many indices. None: nothing in it, or out of reach.
std::optional<Box> box_around(Arena& a, std::span<const ElementSet> sets);
std::optional<int64_t> count_elements(Arena& a, std::span<const ElementSet> sets);
// Is every element of x one of y? Have they none in common? None: out of reach.
std::optional<bool> contained(Arena& a, const ElementSet& x, const ElementSet& y);
std::optional<bool> disjoint(Arena& a, const ElementSet& x, const ElementSet& y);

}  // namespace xhat
