// Values that are there already: an expression that is built a second time is found, and reads them.
#pragma once
#include <memory>
#include <unordered_map>

#include "runtime/lazy/node.h"

namespace xhat::lazy::detail {

// What a node computes of which memory, as 128 bits: equal expressions of equal leaves have equal ones. Two others have by chance once
// in 2^64 pairs of 2^32 expressions each.
struct Structure {
  uint64_t a = 0, b = 0;
  bool operator==(const Structure&) const = default;
};
Structure structure_of(const Node& n, std::span<const Structure> operands);

class KnownValues {
 public:
  bool empty() const { return hidden_ || values_.empty(); }
  void hide(bool hidden) { hidden_ = hidden; }  // nothing is found while it is
  // The realized node that computed the same, or null.
  NodePtr find(const Structure& s);
  void add(const Structure& s, const NodePtr& realized);

 private:
  struct Hash {
    size_t operator()(const Structure& s) const { return s.a; }
  };
  std::unordered_map<Structure, std::weak_ptr<Node>, Hash> values_;
  bool hidden_ = false;
  size_t limit_ = 1024;  // entries at which those are dropped whose value is gone
};
KnownValues& known_values();  // under engine_mutex()

}  // namespace xhat::lazy::detail
