// What flows down an expression in reverse mode, and the axes it lives on.
#pragma once
#include <span>
#include <vector>

#include "ad/guards.h"

namespace xhat {

bool same_set(std::span<const Id> x, std::span<const Id> y);

// One contribution to a node's adjoint: value, over axes (closed under their ranges), zero where a guard
// fails. implied: literals where value is zero already; they matter only before a partial that may be
// infinite there.
struct Contribution {
  std::vector<Id> axes;
  Literals guards;
  Literals implied;
  Id value;
};

// The axes of a body in order of nesting, with their ranges: one range per name.
struct Scope {
  std::vector<AxisRange> ranges;

  const AxisRange* find(Id axis) const;
  // axes and those that their ranges depend on, in order of nesting.
  std::vector<Id> closure(const Arena& a, std::span<const Id> axes) const;
  std::vector<AxisRange> ranges_of(std::span<const Id> axes) const;
};

// Contributions to one node over the same axes become one; guards that differ become part of the values.
std::vector<Contribution> merge(Arena& a, std::vector<Contribution> all);

}  // namespace xhat
