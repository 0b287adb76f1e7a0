// Equal but for the names of axes and the order of what commutes: a[i]*b[i,j] and b[k,l]*a[k], where i is k and j is l.
#pragma once
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "expr/core/expr.h"

namespace xhat {

using AxesOfOther = std::map<Id, Id>;  // of one expression, by the axes of the other

// Which axes correspond if in each pair the two are equal then; the last pairs are compared first. None if they differ, or if operands stand in
// another order and trying both takes too many steps.
std::optional<AxesOfOther> same_but_for_names(const Arena& a, const std::vector<std::pair<Id, Id>>& pairs);

// A hash that is equal for expressions that are.
size_t key_without_names(const Arena& a, Id root);

}  // namespace xhat
