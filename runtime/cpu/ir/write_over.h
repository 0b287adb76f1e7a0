// Results written over inputs, where a call gives one memory for both: an optimizer's step, an activation in place. No second
// array is touched, and what is written is in the cache, as it was read before.
//
// It may be where a kernel reads each element for the element in its place and for no other, and nothing reads it afterwards.
#pragma once
#include <string>
#include <vector>

#include "Halide.h"

namespace xhat::runtime {

// Halide takes buffers to lie apart. So loads of the input become loads of the result's buffer, and what one step stores is
// stored after all that it loads.
struct WrittenOver {
  std::string input, result;  // buffers
  Halide::Expr begin;         // where the tile begins in the input: where the result's buffer begins
};
void write_over(Halide::Pipeline& pipeline, const std::vector<WrittenOver>& over);

// The loads alone, for code that reads each element of a result just before it writes it: sums that are carried from tile to tile.
void read_results(Halide::Pipeline& pipeline, const std::vector<WrittenOver>& over);

}  // namespace xhat::runtime
