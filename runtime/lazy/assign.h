// Assignments: what an array is from now on, and where that is written once it is computed.
#pragma once
#include "runtime/lazy/state.h"

namespace xhat::lazy::detail {

// The array is `value` from now on; its memory when that is realized. Throws Error for an expanded view, and for memory that can only be read.
void assign_value(State& s, const NodePtr& value, const Site& site);
// An expression that has memory of its own by now becomes an array that can be assigned to.
void claim(State& s);

// Where a pending assignment writes.
struct Target {
  std::shared_ptr<Variable> variable;  // none: the node is no assignment
  TensorView view;
  bool part = false;     // a part of the variable's memory
  bool movable = false;  // the variable may get other memory instead
  bool needed = false;   // what its memory holds is needed later
};
Target target_of(const Node& n);

}  // namespace xhat::lazy::detail
