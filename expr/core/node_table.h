// A value for each of the nodes that reachable() gave: in one block, found by bisection. Walks over small expressions are
// what passes do most, and a hash map allocates for every node.
#pragma once
#include <algorithm>

#include "expr/core/expr.h"

namespace xhat {

template <class T>
class NodeTable {
 public:
  explicit NodeTable(std::vector<Id> ascending) : ids_(std::move(ascending)), values_(ids_.size()) {}
  T& operator[](Id id) { return values_[place(id)]; }
  const T& operator[](Id id) const { return values_[place(id)]; }
  const std::vector<Id>& ids() const { return ids_; }

 private:
  size_t place(Id id) const { return static_cast<size_t>(std::ranges::lower_bound(ids_, id) - ids_.begin()); }

  std::vector<Id> ids_;
  std::vector<T> values_;
};

}  // namespace xhat
