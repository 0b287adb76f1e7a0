// What is known at each node of a body from the way that leads to it: the conditions of selects and reductions around it.
#pragma once
#include <unordered_map>

#include "expr/core/expr.h"

namespace xhat {

// Walks from root down. narrow(known, condition): what is known where the condition holds as well. join(into, other): what
// is known at a node reached in two ways. The condition of a select's other branch is its negation.
template <class Known, class Narrow, class Join>
std::unordered_map<Id, Known> known_on_paths(Arena& a, Id root, const Known& at_root, Narrow narrow, Join join) {
  std::unordered_map<Id, Known> known = {{root, at_root}};
  std::vector<Id> ids = reachable(a, root);
  auto reach = [&](Id node, const Known& here) {
    auto [it, fresh] = known.emplace(node, here);
    if (!fresh) join(it->second, here);
  };
  for (size_t i = ids.size(); i-- > 0;) {
    Known here = known.at(ids[i]);
    const Node& n = a[ids[i]];
    if (n.op == Op::select) {
      reach(n.arg(0), here);
      reach(n.arg(1), narrow(here, n.arg(0)));
      reach(n.arg(2), narrow(here, a.unary(Op::lnot, n.arg(0))));
    } else if (is_reduction(n.op)) {
      reach(n.arg(0), narrow(here, n.arg(1)));
      for (size_t k = 1; k < n.arg_count; ++k) reach(n.arg(k), here);
    } else {
      for (Id x : n.args()) reach(x, here);
    }
  }
  return known;
}

}  // namespace xhat
