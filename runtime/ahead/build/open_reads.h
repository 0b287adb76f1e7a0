// Reads that need no look at their indices, whatever the sizes.
#pragma once
#include "expr/core/program.h"

namespace xhat::runtime {

// The same program, in which every read that is not proved to be inside wherever its loops go, for all sizes of at least 1, says what it gives
// outside: also one that a condition guards, for kernels evaluate both sides of a condition.
Program with_open_reads(const Program& p);

}  // namespace xhat::runtime
