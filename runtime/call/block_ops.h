// The ops that blocks of a program with loops and branches are compiled as, at given sizes.
#pragma once
#include <map>
#include <optional>

#include "ad/reverse/deferred_gradients.h"
#include "expr/core/steps.h"
#include "runtime/call/compile.h"

namespace xhat::runtime {

// Blocks with the same key are compiled as one.
inline const Program* key(const Block& b) { return b.with_gradient ? b.with_gradient.get() : b.op.get(); }

struct BlockOp {
  Program op;
  CompileOptions options;
  // Gradients of what does not change in the loop around, where keeping what they are made of and adding it up once for many iterations
  // is cheaper than adding to them in each. Then `op` is deferred->op.
  std::optional<DeferredGradients> deferred;
  CompileOptions sums_options;  // of deferred->sums
  int64_t runs_at_once = 0;     // that deferred->sums adds up at most
};

// The dims that are not computed from others.
DimValues given_dims(const Program& op, DimValues dims);

// By key. p: with gradients, if options.differentiate.
std::map<const Program*, BlockOp> block_ops(const Program& p, const CompileOptions& options, const DimValues& dims);

}  // namespace xhat::runtime
