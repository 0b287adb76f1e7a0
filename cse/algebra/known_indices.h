// What the forward says of indices that are data: where it reads z[n,t[n]] for every n, each t[n] is a place of z, or the call is an error.
//
//   y = sum(n: log(e[n,t[n]]))        =>      0 <= t[n] && t[n] < K for n in 0..N
//
// So a sum that a choice by such an index leaves one term of has that term: sum(k: if t[n] == k then a[k] else 0) is a[t[n]], without a guard,
// and cancels with what it is the same as.
#pragma once
#include <span>
#include <vector>

#include "expr/core/program.h"

namespace xhat {

class KnownIndices {
 public:
  KnownIndices() = default;
  // Of what the forward reads whatever data say, at an index that names each of the axes around it (along another one there may be nothing).
  explicit KnownIndices(const Program& p);
  // Is `value` from 0 to `extent` at all points of the scope?
  bool inside(Arena& a, Id value, Id extent, std::span<const AxisRange> scope) const;

 private:
  void remember(const Program& p, const Definition& d);
  struct Known {
    Id index = kNone, extent = kNone;
    std::vector<AxisRange> axes;
  };
  std::vector<Known> all_;
};

}  // namespace xhat
