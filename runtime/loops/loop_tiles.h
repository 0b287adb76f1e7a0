// Points of a loop that never meet: a dimension of what it carries along which every element is made of elements at the same place, in every
// iteration (the members of an ensemble, the sequences of a batch). Some of them can run through all iterations before others do, on another
// thread, and what they carry stays in the cache: the loops are strip-mined and interchanged (Wolfe, More iteration space tiling, 1989).
#pragma once
#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include "runtime/loops/loop_code.h"

namespace xhat::runtime {

struct LoopTiles {
  // What of a block is cut, in one of its directions.
  struct Cut {
    std::set<Id> axes;
    std::set<std::pair<uint32_t, size_t>> dimensions;  // of the spec's tensors
  };
  int64_t extent = 0;                              // of the dimension
  int64_t tile = 0;                                // elements of it at a time; the last tile may have fewer
  std::unordered_map<TensorId, size_t> dimension;  // of the loop's values and adjoints; those that are not here are the same for all tiles
  std::map<std::pair<const Block*, int>, Cut> cuts;
  std::map<std::pair<const Block*, size_t>, size_t> kept;  // the dimension of what blocks keep

  int64_t count() const { return (extent + tile - 1) / tile; }
  int64_t rest() const { return extent % tile; }
};

// All that a loop has, each with its tile chosen; not those that would have less than two tiles. differentiated: also for its backward.
// shapes: of all tensors of p.
std::vector<LoopTiles> tiles_of(const Program& p, const Loop& loop, const LoopBlocks& blocks, bool differentiated,
                                const std::vector<std::vector<int64_t>>& shapes);

// The same for so many elements of the dimension.
LoopBlocks restricted(LoopBlocks blocks, const LoopTiles& tiles, int64_t elements);
std::vector<std::vector<int64_t>> restricted(std::vector<std::vector<int64_t>> shapes, const LoopTiles& tiles, int64_t elements);

}  // namespace xhat::runtime
