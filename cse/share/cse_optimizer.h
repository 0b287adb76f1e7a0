// The largest subexpressions that forward and backward share.
//
//   fwd y[n] = tanh(x[n])                                 bwd g[n] = dy[n]*(1 - tanh(x[n])^2)
//     reuse_stored   =>                                   bwd g[n] = dy[n]*(1 - y[n]*y[n])
//   fwd y[n,c] = gamma[c]*(x[n,c]-m[c])/sqrt(v[c]+eps)    bwd … (x[n,c]-m[c])/(v[c]+eps) …
//     share_largest  =>   fwd h[n,c] = (x[n,c]-m[c])/sqrt(v[c]+eps)    bwd … h[n,c]/sqrt(v[c]+eps) …
//
// Compares products of the normal form (tensor_expr_tree), so a share may be part of a product, a power, or stand
// under other axes (renamed, permuted, reversed, shifted: unify). Of all products of the backward, the common
// sub-product that has most axes, then costs most, comes first, so nothing is shared that a larger share contains.
// A share that the forward stores anyway (an output, a definition) costs nothing; it may also stand for a
// function of it (stored_forms.h): exp(y) for y = x - log(s), y*(1-y) for 1/(1+exp(-x)), -expm1(-y) for log(1+exp(x)).
// Not worth it: a read, a number, x-1, what costs less than 100 ps.
//
// Real-only in the backward; what the user wrote in the forward stays as it is.
// Needs: the normal form of auto_inliner, after reduction_algebra. Keeps it.
#pragma once
#include <vector>

#include "expr/core/program.h"

namespace xhat {

// Reads these forward tensors (usually the outputs that the caller keeps) instead of computing the same
// again. dropped: inputs and outputs that are gone by then; not to need one is worth some work.
Program reuse_stored(const Program& p, const std::vector<TensorId>& stored, const std::vector<TensorId>& dropped = {});

// Reads backward maps that are definitions anyway (operands of a matrix product) instead of computing them
// again.
Program reuse_backward(const Program& p);

// reuse_stored, then makes shared subexpressions that are worth it forward definitions, largest first. What stands in other definitions
// of both directions is shared in the same round, so that an op of many layers takes as many rounds as one of its layers.
struct Shared {
  Program program;
  bool all;          // nothing worth it was left out for a limit
  int64_t compared;  // pairs of a forward and a backward product that were looked at closely
};
constexpr int most_rounds_of_shares = 16;
// save_reads: also what takes less than it would cost to keep it, if it is one read where its operands are several.
Shared share_largest(const Program& p, const std::vector<TensorId>& stored, const std::vector<TensorId>& dropped = {},
                     bool save_reads = false);

}  // namespace xhat
