// Definitions as far as somebody reads them.
//
//   s[i] = sum(k: x[i,k])              i in 0..M, where all that is read of s is
//   y[i in 0..N] = s[i] * w[i]         s[i] for i in 0..N
//     =>  s[i in 0..N] = sum(k: x[i,k])
//
// A dimension is cut to the range that all reads of it walk, if each walks it by a bare axis from 0 to the same end, and if that end
// is proved to be no larger than the dimension: where a condition keeps the reads inside, they may walk further. What is inlined
// computes only what is read anyhow; this is for reductions, and what the forward keeps.
// Needs: the normal form of auto_inliner. Keeps: values to the bit, and what is delivered. Does not look for ranges that begin
// elsewhere, nor for the largest of several.
#pragma once
#include "expr/core/program.h"

namespace xhat {

Program narrow(const Program& p);

}  // namespace xhat
