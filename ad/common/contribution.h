// What flows down an expression in reverse mode, and the axes it lives on.
#pragma once
#include <span>
#include <unordered_set>
#include <vector>

#include "ad/common/guards.h"

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

// Which conditions the forward of a body has itself: where one of them fails, what is below it was never computed. Others
// come with derivatives, or from the definitions that read this one.
class Path {
 public:
  bool has(Id literal) const { return on_.contains(literal) || !derived_.contains(literal); }
  void add(const Literals& conditions) { on_.insert(conditions.begin(), conditions.end()); }
  void add_derived(const Literals& conditions) { derived_.insert(conditions.begin(), conditions.end()); }
  // The same condition under other names.
  void rename(Id from, Id to) {
    if (on_.contains(from)) on_.insert(to);
    if (derived_.contains(from)) derived_.insert(to);
  }

 private:
  std::unordered_set<Id> on_, derived_;  // may be both
};

// Contributions to one node over the same axes become one; guards that differ become part of the values.
std::vector<Contribution> merge(Arena& a, std::vector<Contribution> all, Path& path);

}  // namespace xhat
