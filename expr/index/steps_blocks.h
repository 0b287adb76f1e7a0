// The blocks of a program with loops and branches, at given sizes.
#pragma once
#include "expr/core/steps.h"
#include "expr/index/dims.h"

namespace xhat {

struct BlockAt {
  const Block* block;
  DimValues dims;     // of its op
  int64_t runs = 1;   // how often a call runs it; of a while loop and of branches: at most
};

// In the order of the steps. A loop whose bounds only a run knows counts once.
std::vector<BlockAt> blocks_at(const Program& p, const DimValues& dims);

}  // namespace xhat
