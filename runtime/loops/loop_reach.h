// What a block that writes a result in place may change of it: of `if k < i && k < j then … else a[i,j]` the places behind k, of
// `if j == s-i then … else r[i,j]` an antidiagonal, of `if i == at[t] then … else y[i,j]` a row. The rest need not go on the tape.
#pragma once
#include <vector>

#include "runtime/loops/loop_code.h"

namespace xhat::runtime {

// Along one axis: from begin to before end, expressions of the program's arena over loop variables and dims. Nothing, if end is not larger.
struct Reach {
  Id begin = kNone, end = kNone;
};

// Elements that stand at `places`, by dimension, while axes run over a box. A place is one of the axes, or an integer that the program's arena
// computes of them, of loop variables, dims and integers in memory; where one is outside of the tensor, there is no element.
struct Changed {
  std::vector<Id> axes;
  std::vector<Reach> box;  // by axis
  std::vector<Id> places;  // by dimension
  // What the block itself computes for places (the pivot's row): results, which places read, and what it keeps for its backward, for an element
  // of which an axis stands in them.
  struct Kept {
    Id axis;
    size_t number;  // in LoopBlock::kept
    std::vector<Id> at;
    bool operator==(const Kept&) const = default;
  };
  std::vector<Kept> kept = {};
  std::vector<Id> all_places() const;  // also of what is kept
  std::vector<size_t> members = {};    // of the block's forward, that compute this; empty: nothing needs to be computed
};

// Of what may change all is in one of these. Empty: it is made anew, or nothing is known of where it changes.
std::vector<Changed> changed_by(const Program& p, const Block& b, const LoopBlock& block, const LoopMemory& memory, size_t result);
// How many elements a box has at these sizes and values of the loops' variables.
int64_t elements_in(const Arena& a, const std::vector<Reach>& box, const DimValues& dims, const AxisValues& at);

}  // namespace xhat::runtime
