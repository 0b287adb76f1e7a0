// Turns scatter into gather: solves the equations that reads leave in the conditions of backward sums, so that a loop
// visits only what contributes. No zero-stuffing, no atomics, and a fixed order of addition.
//   grad_x[j] = sum(i, r if 2*i + r - 1 == j: dy[i]*w[r])
//     =>   grad_x[j] = sum(i in max(0, (j - 1 + 1)/2) .. min(N, (j + 1)/2 + 1): dy[i]*w[j - 2*i + 1])
// Keeps values up to the order of addition. What cannot be solved (`ids[b,l] == v`) stays: it is the form of scatter-add.
#pragma once
#include "expr/program.h"

namespace xhat {

Program gather(const Program& p);

}  // namespace xhat
