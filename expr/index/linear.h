// Linear forms of index expressions: 2*i + 3 - 2*(i - j) as 2*j + 3.
#pragma once
#include <map>

#include "expr/core/expr.h"

namespace xhat {

// A linear form of integers: nodes with coefficients, and a constant.
struct Linear {
  std::map<Id, int64_t> terms;
  int64_t constant = 0;
  bool operator==(const Linear&) const = default;
};
Linear linear(const Arena& a, Id index);
void add_scaled(Linear& to, const Linear& from, int64_t scale);
Id to_index(Arena& a, const Linear& l);
// A comparison of integers without what stands on both sides: i + k < i + 3 is k < 3. Another node, or one without such parts, stays.
Id without_common_parts(Arena& a, Id comparison);
// The index with its linear parts collected: C-1-(C-1-c) is c.
Id tidy_index(Arena& a, Id index);

}  // namespace xhat
