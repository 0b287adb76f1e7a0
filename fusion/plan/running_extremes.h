// A backward that reads a running maximum or minimum of what it reads anyway computes it again.
//
//   fwd m[i] = max(k in 0..i+1: x[k])                     bwd again[i] = max(k in 0..i+1: x[k])
//   bwd g[k] = sum(i in k..N if x[k] == m[i]: dy[i])  =>      g[k] = sum(i in k..N if x[k] == again[i]: dy[i])
//
// Then the sums over ranges that read it see what it is, and run in steps as it does itself (prefix_terms.h): n log n of each instead of n^2, and
// nothing is kept. An extreme has the same bits wherever it is computed.
//
// Needs: the program after all passes. Keeps: every value and every bit.
#pragma once
#include "expr/core/program.h"

namespace xhat {

Program recompute_running_extremes(const Program& p);

}  // namespace xhat
