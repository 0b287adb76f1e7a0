// Flattened positions taken apart: a question about p/M and p%M, M a dim, is linear in the quotient and the remainder.
//
//   p in 0..N*M: x[p/M, p%M+1]        =>   q in 0..N, r in 0..M: x[q, r+1]
//   p in 0..N*M*K: p/(M*K), p/K%M     =>   q in 0..N, s in 0..M, r in 0..K: q, s
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "expr/index/affine.h"

namespace xhat::affine {

struct OwnQuestion {
  std::vector<AxisRange> axes;
  std::vector<Id> conditions;
  Id index, extent;
  BoundsQuestion view() const { return {axes, conditions, index, extent}; }
};

// The question about the same points in other axes. None: no axis can be taken apart.
std::optional<OwnQuestion> split_positions(Arena& a, const BoundsQuestion& q);

// "p = 1 with M = 1, N = 2: index 3", at the first of the sizes tried (expr/index/affine_sizes.cpp) where the index falls outside, if there is one.
std::optional<std::string> violation_at_some_sizes(Arena& a, const BoundsQuestion& q);

}  // namespace xhat::affine
