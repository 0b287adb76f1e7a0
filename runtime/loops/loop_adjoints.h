// Adjoints that stay where they are. What a block leaves of `a[i] = if k < i then f(a[i]) else a[i]` is a[i] for most i, and so is the adjoint of
// what it begins with that of what it leaves: the backward writes the few that differ over the cotangent, and touches no others.
//
//   grad_a[i] = (if k < i then 2*da[i] else da[i]) + (if i == k then s else 0), s = sum(j: … da[j]*c[j])
//   =>  s first, then over da[i]: 2*da[i] for k < i, then s is added at k
//
// What is read of a cotangent at other elements is read before anything is written over it: by definitions that come before, or of a copy.
#pragma once
#include <set>

#include "runtime/loops/loop_code.h"

namespace xhat::runtime {

// For LoopBlock::adjoints_in_place, from the rest.
std::set<std::pair<size_t, size_t>> found_adjoints_in_place(const LoopBlock& block);
// Where the adjoints of the loop's values lie.
LoopMemory adjoint_memory(const Program& p, const Loop& loop, const LoopBlocks& blocks);

struct BackwardInPlace {
  LoopBlock::Direction direction;
  std::set<uint32_t> written;  // gradients, by tensor of the spec, that are written over a cotangent, and not added to what is there
  std::set<uint32_t> apart;    // gradients that are computed in memory of their own, and added when all the others are there
  bool is_added(uint32_t tensor) const { return direction.is_added(tensor) && !written.contains(tensor); }
};
// The backward of a block that has one, where its adjoints lie so.
BackwardInPlace backward_in_place(const Block& b, const LoopBlock& block, const LoopMemory& adjoints);
// Is the adjoint of this result that of an operand when the block's backward is done?
bool is_written_over(const Block& b, const LoopBlock& block, const LoopMemory& adjoints, size_t result);

}  // namespace xhat::runtime
