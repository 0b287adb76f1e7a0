// Gradients of what does not change in a loop, as kernels: block_ops says which, ad/reverse/deferred_gradients.h what they are.
#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "runtime/call/block_ops.h"

namespace xhat::runtime {

// Gradients that are added up for many runs of a block at once (DeferredGradients). Operands are numbered as the block's.
struct SumsOverRuns {
  struct Part {
    std::string name;               // in the sums
    std::optional<size_t> operand;  // copied; else the backward of the block writes it, by the name `made`
    std::string made;
  };
  CompiledOp op;
  std::vector<Part> parts;
  std::vector<std::pair<std::string, size_t>> shared;     // by name in the sums, the operand
  std::vector<std::pair<std::string, size_t>> gradients;  // the same
  DimValues dims;                                         // of the block
  std::string runs;                                       // the dim that is the number of runs
  std::vector<size_t> operands;                           // that parts and what is shared are read from
  int64_t runs_at_once = 0;
  explicit SumsOverRuns(const BlockOp& block);
  DimValues full() const {  // with as many runs as are added up at once
    DimValues all = dims;
    all[runs] = runs_at_once;
    return all;
  }
  int64_t times(int64_t of_block) const { return (of_block + runs_at_once - 1) / runs_at_once; }
  bool gives(size_t operand) const {
    return std::ranges::any_of(gradients, [&](const auto& g) { return g.second == operand; });
  }
};

}  // namespace xhat::runtime
