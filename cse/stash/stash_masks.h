// Comparisons that the backward makes of forward values, as values that can be kept: a byte an element.
//
//   bwd g[n] = if 0 < x[n] then dy[n] else 0     =>     fwd x_mask[n] = 0 < x[n]     bwd g[n] = if x_mask[n] then dy[n] else 0
//
// A mask runs over the points of one tensor that it compares, and serves every condition that is the same comparison at
// other points: max pooling's ties read x_mask[2*i+r], where x_mask[n] = x[n] == y[n/2]. Proposes only: what is kept is for
// the stash planner to say.
// Signs are kept likewise, as a number for each of positive, negative, zero and NaN: of abs(x), sign(x).
// Not proposed: what reads with `else`, by way of data (table[ids[b]]), or draws random numbers, which the backward draws again.
#pragma once
#include <functional>
#include <vector>

#include "expr/core/program.h"

namespace xhat {

struct Mask {
  struct Use {
    TensorId in;  // the backward definition that is the target of
    Id condition, read;  // read: what takes the condition's place
  };
  Definition definition;  // forward, of a new tensor of p
  std::vector<Use> uses;
};

// worth: is a mask of this shape less to keep than what it reads?
using MaskWorth = std::function<bool(const std::vector<Id>& shape, const std::vector<TensorId>& reads)>;
std::vector<Mask> find_masks(Program& p, const MaskWorth& worth);
// The masks become definitions, and the conditions read them.
Program with_masks(const Program& p, const std::vector<Mask>& masks);

}  // namespace xhat
