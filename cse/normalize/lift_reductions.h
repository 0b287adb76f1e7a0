// Every reduction that is not a whole body becomes a definition over its free axes, and a read stands for it.
//
//     y[n,d] = e[n,d] / sum(k: e[n,k])       =>     y_sum[n] = sum(k: e[n,k])     y[n,d] = e[n,d] / y_sum[n]
//
// The new tensor is a box: axes whose ranges depend on others (j in 0..i+1) run over all that they can be. What it holds
// where nobody asked means nothing, and costs no error: the conditions it stood under go along where they are about
// its own axes, and a read that can be outside elsewhere gets a value there. Where the data decides whether a read is
// inside, or an argmax could be over nothing, it is evaluated exactly where it was: `if p[a] > 0` around it becomes
// `any(a: p[a] > 0)`.
#pragma once
#include "expr/core/program.h"

namespace xhat {

// Calls must be expanded, definitions in order. Keeps values exactly, names and order of outputs.
// before_gather: leaves the sums that gather can solve where they are. It substitutes the axes of those around them, so
// what stands inside is lifted first, while its axes have the ranges that the user gave them.
Program lift_reductions(const Program& p, bool before_gather = false);

}  // namespace xhat
