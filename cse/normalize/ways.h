// The conditions on the ways that lead to a node of a body, as expressions.
#pragma once
#include <unordered_map>

#include "expr/core/conditions.h"

namespace xhat {

// What is known to hold wherever a node is evaluated.
struct Ways {
  Id all;     // exactly where: the disjunction over all ways to the node
  Id shared;  // what all ways have in common, outer conditions first
};
std::unordered_map<Id, Ways> ways_to(Arena& a, Id root);

// x && y, where y may read what only x keeps in bounds: && evaluates both sides.
Id guarded_by(Arena& a, Id x, Id y);
Id either(Arena& a, Id x, Id y);
// x && y, also written `if x then y else false`.
bool is_chain(const Arena& a, Id id);
// Without the last conjunct; true if there is only one.
Id outer_of(Arena& a, Id condition);

}  // namespace xhat
