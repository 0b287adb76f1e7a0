// Conditions as lists of literals (a conjunction). The reverse sweep carries them beside a value, so that a
// guard the user wrote stays outside what it guards: `if x > 0 then dy*(1/x) else 0`, never `(if x > 0 then
// dy else 0)*(1/x)`, which is 0*inf at x = 0.
#pragma once
#include <span>
#include <vector>

#include "expr/core/conditions.h"
#include "expr/core/program.h"

namespace xhat {

using Literals = std::vector<Id>;  // all hold; distinct, outer conditions first

// Adds condition's conjuncts that are not there yet.
void add_literals(const Arena& a, Literals& literals, Id condition);
// Conditions on positions before those that read tensors: they keep what the others read in bounds.
void positions_first(const Arena& a, Literals& literals);
// kNone if there are none.
Id conjunction(Arena& a, std::span<const Id> literals);
// value where all literals hold, else 0.
Id guarded(Arena& a, std::span<const Id> literals, Id value);
// Is all that the expression reads in bounds, for all values of the axes where `known` holds? A condition that is not
// may not leave the range or the condition that keeps it so.
bool reads_inside(Arena& a, const Program& p, Id expression, std::span<const AxisRange> axes, std::span<const Id> known);
// A sum's conditions, by where they may stand: inside the sum over `bound`, or outside of it, at points of `around`.
struct SplitGuards {
  Literals inner, outer;
};
SplitGuards split_guards(Arena& a, const Program& p, const Literals& conditions, std::span<const Id> bound,
                         std::span<const AxisRange> around);
// May `before` be there to keep what `condition` reads in bounds?
bool reads_what_is_guarded(const Arena& a, Id before, Id condition);
// `x || y`, with a || !a = true and a < b || a == b = a <= b. kNone stands for true.
Id disjunction(Arena& a, Id x, Id y);

bool depends_on(const Arena& a, Id expression, std::span<const Id> axes);
bool contains(std::span<const Id> ids, Id id);

}  // namespace xhat
