// Selects of the backward that decide as a stored select did: each branch knows what the stored value is there, and
// where the sign of the value tells how it was decided, nothing else is read.
//
//   fwd y[n] = if 0 < x[n] then x[n] else exp(x[n]) - 1
//   bwd g[n] = if 0 < x[n] then dy[n] else exp(x[n])*dy[n]    =>    if 0 < y[n] then dy[n] else (y[n] + 1)*dy[n]
//
// The sign is taken only where it is the same decision to the bit: u (times 1 or more) on the positive side, and on the
// other 0, u times something not negative, exp(u) - 1 or expm1(u). Not for max(u, 0): its gradient at 0 is half.
#pragma once
#include <optional>

#include "cse/share/sharing.h"

namespace xhat {

struct StoredBranches {
  TensorId tensor;
  std::vector<AxisRange> free;  // of the pattern
  Id condition;                 // as the forward has it
  Product then, otherwise;
  double factor;                // the value is that times the select
  bool by_sign;                 // condition is 0 < u or u <= 0, and so is 0 < value or value <= 0
};
std::optional<StoredBranches> stored_branches(TensorExprTree& tree, TensorId tensor, const std::vector<AxisRange>& free,
                                              const Product& form);

// The expression with such selects replaced where that is cheaper. dropped: inputs and outputs that are gone.
Id reuse_branches(const Program& p, TensorExprTree& tree, Sharing& sharing, const std::vector<StoredBranches>& stored,
                  const std::set<TensorId>& dropped, Id expression, std::span<const AxisRange> scope);

}  // namespace xhat
