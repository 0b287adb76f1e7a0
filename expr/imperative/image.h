// Where a write writes: the point of its axes that belongs to an element.
#pragma once
#include "expr/imperative/state.h"

namespace xhat::imperative {

// Values of unknowns at which every index equals its target, if the conditions hold; elsewhere there are none.
struct Solution {
  Replacements values;          // of the unknowns that were solved
  std::vector<AxisRange> open;  // the others
  std::vector<Id> conditions;
};
// Indices that are linear in the unknowns, or quotients and remainders of such; none where these are not enough.
// An index that depends on data is looked up in a table of the positions, so that one outside of `shape` is an error in the run.
std::optional<Solution> solve(Context& c, std::span<const AxisRange> unknowns, std::span<const Id> indices, std::span<const Id> targets,
                              const Shape& shape);
// All of them hold: those of positions first, then the guard, then those that depend on data. kNone: nothing to ask.
Id all_hold(Context& c, std::span<const Id> conditions, Id guard);

// Can the point of the write's axes be told from the element?
bool is_invertible(Context& c, const Write& w);
// The write as a definition of its result, `if the element is written then body else base`.
Definition select_form(Context& c, const Write& w);
// Its value at an element, given what the base's is there.
Id value_at(Context& c, const Write& w, std::span<const Id> element, std::span<const AxisRange> around, std::span<const Id> known, Id base);

}  // namespace xhat::imperative
