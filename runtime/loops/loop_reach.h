// What a block that writes a result in place may change of it: of `if k < i && k < j then … else a[i,j]` the places behind k. The rest need not
// go on the tape.
#pragma once
#include <vector>

#include "runtime/loops/loop_code.h"

namespace xhat::runtime {

// Along one dimension: from begin to before end, expressions of the program's arena over loop variables and dims. Nothing, if end is not
// larger.
struct Reach {
  Id begin = kNone, end = kNone;
};
// By dimension of the result; empty: it is made anew, or nothing is known of where it changes.
std::vector<Reach> reach_of(const Program& p, const Block& b, const LoopBlock& block, const LoopMemory& memory, size_t result);
// How many elements a box has at these sizes and values of the loops' variables.
int64_t elements_in(const Arena& a, const std::vector<Reach>& box, const DimValues& dims, const AxisValues& at);

}  // namespace xhat::runtime
