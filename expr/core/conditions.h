// Conditions as lists of parts that all hold.
#pragma once
#include <vector>

#include "expr/core/expr.h"

namespace xhat {

bool is_false(const Arena& a, Id id);

// Holds where the condition does not. Exact also for NaN: !(a == b) is a != b, but !(a < b) is b <= a for integers only.
Id negation(Arena& a, Id condition);

// x and y of x && y, also written to be evaluated from left to right: if x then y else false, if !x then false else y. Left
// to right, and down into negations of ||.
std::vector<Id> conjuncts(Arena& a, Id condition);
// The same of a condition that does not hold.
std::vector<Id> negated_conjuncts(Arena& a, Id condition);

// Does any part of it, however joined, look at no data? Else it says nothing of positions.
bool is_about_positions(const Arena& a, Id condition);

// Of positions, in a condition: j < i + 1 is j <= i, and j <= i - 1 is j < i. What ranges say and what was written are one choice then.
Id with_plain_bounds(Arena& a, Id condition);

}  // namespace xhat
