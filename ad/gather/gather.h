// Turns scatter into gather: solves the equations that reads leave in the conditions of backward sums, and those that users write, so
// that a loop visits only what contributes. No zero-stuffing, no atomics, and a fixed order of addition.
//   grad_x[n] = sum(i, r if 2 * i + r - 1 == n: dy[i] * w[r])
//     =>   grad_x[n] = sum(i in n/2..min((n+1)/2+1,(N+1)/2): dy[i] * w[n-2*i+1])
// And the comparisons that ranges leave: y[i] = sum(j in 0..i+1: x[j]) has the gradient sum(i in j..N: dy[i]).
// An axis that data decide is no loop either: the gradient of y[s] = sum(n if seg[n] == s: x[n]),
//   grad_x[n] = sum(s if seg[n] == s: dy[s])
//     =>   grad_x[n] = if 0 <= seg[n] && seg[n] < S then dy[seg[n]] else 0
// A choice by such an equation inside of a sum, sum(s: if seg[n] == s then dy[s] else 0), is a condition of the sum, and each of several that
// are added up has a sum of its own.
// An index with pieces is solved piece by piece (pieces.h):
//   sum(i if clamp(i - 1, 0, N - 1) == n: dy[i])
//     =>   (if n + 1 < N then dy[n+1] else 0) + (if 0 == n then sum(i in 0..min(1,N): dy[i]) else 0)
// Keeps values up to the order of addition. What cannot be solved (`ids[b,l] == v` for v from outside) stays: it is the form of
// scatter-add.
#pragma once
#include "expr/core/program.h"

namespace xhat {

Program gather(const Program& p);

}  // namespace xhat
