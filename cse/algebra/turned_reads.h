// What the backward reads across, it reads along rows: of the same tensor where that is symmetric, else of one that is computed with two
// axes exchanged.
//
//   s[i,j] = sum(k: (x[i,k]-x[j,k])^2)    r[i,j] = a[i]*b[j]
//   bwd t[j] = sum(i: s[i,j]*r[i,j])    =>    bwd r_turned[j,i] = a[i]*b[j]    bwd t[j] = sum(i: s[j,i]*r_turned[j,i])
//
// Sums over either axis of all pairs then run along the same rows, in one kernel, and what they read is computed there.
// Rows: a definition's own axes come first, then those that it sums over. s is symmetric (or antisymmetric: the sign changes) if the
// normal form of its body is the same with both axes exchanged; real-only. A definition that has to read something across, an input for
// example, stays as it is, and so does all that it reads across, wherever that is read.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>

#include "expr/core/program.h"

namespace xhat {

// Prices of a definition in picoseconds: to compute it once more, and to keep its value in memory instead.
struct TurnPrice {
  int64_t again_ps, keep_ps;
};
using TurnPrices = std::function<TurnPrice(const Definition&)>;

// None where nothing is read across that can be turned. What is not symmetric is computed turned where that, with all that it reads so
// turned, is cheaper than memory for it; without prices it stays.
std::optional<Program> with_turned_reads(const Program& p, const TurnPrices& prices);

}  // namespace xhat
