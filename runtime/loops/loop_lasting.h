// Where the end of a loop still has all that the backward reads of a value: each element is written, if at all, before it is read, and never
// after that (a table filled in order, a row per iteration). The value that the loop leaves is then its own tape.
//
//   for i in 1..N { d[i] = x[i] + exp(d[i-1]) }        d[i-1] is read in iteration i, and written in no later one: d stays as it is
//   for k in 0..K { for i in 1..N { d[i] = … d[i-1] }}  d[i-1] is written again in iteration k + 1
#pragma once
#include <set>

#include "runtime/loops/loop_code.h"

namespace xhat::runtime {

// Of these places, which the backward reads, those of which this is proved.
std::set<TensorId> lasting_places(const Program& p, const Loop& loop, const DimValues& dims, const LoopBlocks& blocks, const LoopMemory& memory,
                                const std::set<TensorId>& read_back);

}  // namespace xhat::runtime
