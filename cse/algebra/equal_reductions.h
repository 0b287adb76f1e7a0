// A reduction that the backward computes and that is defined already, but for the names and order of axes, is read.
//
//   fwd s[n,k] = sum(d: x[n,d]*w[k,d])    bwd t[k,n] = sum(e: x[n,e]*w[k,e])    bwd g[k] = sum(n: f(t[k,n]))
//     =>                                                                        bwd g[k] = sum(n: f(s[n,k]))
//
// Gradients of nested reductions lift the same sum again under other axes. Exact: the value is not even computed in another
// order, so that a comparison in the backward sees the forward's bits.
// The order of operands may differ, too, where it makes no difference: a product, a sum of two, a comparison for equality.
// Needs: the normal form of auto_inliner. Keeps it.
#pragma once
#include <optional>
#include <vector>

#include "expr/core/program.h"

namespace xhat {

// kept: those of the forward that the backward may read, if not all.
Program reuse_equal_reductions(const Program& p, const std::optional<std::vector<TensorId>>& kept = {});

}  // namespace xhat
