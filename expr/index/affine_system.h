// A system of index equations to be solved for bound axes: what affine_rules rewrites, affine_solve solves
// group by group, and invert() puts together.
#pragma once
#include <span>
#include <vector>

#include "expr/index/affine.h"

namespace xhat::affine {

struct Equation {
  Id left;   // over the bound axes (and outer axes, dims)
  Id right;  // over the targets
};

struct System {
  std::vector<AxisRange> axes;  // bound, in order
  std::vector<Equation> equations;
  std::vector<Id> conditions;    // bool, all must hold
  std::vector<Id> inequalities;  // what rules made of equations: bool, all must hold
  std::vector<Id> taken = {};    // axes that a new one may not be called like
};

// Replaces what isl cannot express or sees in pieces by equations that say the same for bound axes and
// targets in their ranges:
//   e / D == a, e % D == b        =>  e == a*D + b             b in 0..D; also e/(C*D) with e/D%C, e%(C*D)/D
//   (u + s) % N == b              =>  u == (b - s) % N         u and b in 0..N; u: an axis, or all terms with bound axes
//   p % D == b                    =>  p == k*D + b             p in 0..K*D, with a new axis k in 0..K
//   i*D + j == t                  =>  j == t % D, i == t / D   j in 0..D, D symbolic; and again for i
//   e / D == a                    =>  a*D <= e < a*D + D       D symbolic, at least 1
void apply_rules(Arena& a, System& system, std::span<const AxisRange> targets);

struct Solution {
  std::vector<AxisRange> remaining;
  std::vector<std::pair<Id, Id>> solved;  // over targets and remaining
  std::vector<Id> guards;
  bool progress = false;  // something was solved or narrowed
};
// Solves one connected group. The answer enumerates exactly the points of the system, each once; where isl
// gives up the axes stay as they are, with the whole system as guard.
Solution solve(Arena& a, const System& group, std::span<const AxisRange> targets);

// The same value, written better: sums collected, e - 4*(e/4) as e % 4, comparisons of integers with both
// sides free of minus signs (0 <= j - i + 1 becomes i <= j + 1).
Id tidy(Arena& a, Id e);

}  // namespace xhat::affine
