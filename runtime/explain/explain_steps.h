// Explains programs with loops and branches, block by block.
#pragma once
#include "runtime/explain/explain.h"

namespace xhat {

// As explain(): the text of a direction is that of the steps; kernels are those of the blocks, with the bytes and operations of all their
// runs in one call, and what is stashed counts for all runs as well.
Explanation explain_steps(const Program& op, const CompileOptions& options, const DimValues& given);

// What explain() shares with it.
std::vector<ExplainedTensor> tensors_of(const Program& p, const std::vector<TensorId>& list);
DimValues choose_sizes(const Program& p, const StashOptions& stash, const DimValues& given);

}  // namespace xhat
