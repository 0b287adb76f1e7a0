// What the stash planner does before any size matters: the backward's sums are simplified, and what forward and backward share is
// found. Most of its time goes here.
#pragma once
#include <set>

#include "cse/stash/stash_planner.h"

namespace xhat {

struct PreparedStash {
  Program program;
  std::set<TensorId> retained;  // inputs and outputs that stay with the caller
  std::set<TensorId> strict;    // reductions that both passes must see the same bits of: never recomputed
  std::set<TensorId> exact;     // comparisons depend on them
  std::set<TensorId> written;   // by the user, in the forward
  bool all_shared = true;       // nothing that forward and backward share was left out for a limit
  int64_t compared = 0;         // StashPlan::compared
};

// Throws Error for an unknown name among kept_by_caller or dropped, and for another store_as.
PreparedStash prepare_stash(const Program& p, const StashOptions& options);

inline bool goes_by_prices(const StashOptions& o) {
  return o.policy == StashOptions::Policy::cost || o.policy == StashOptions::Policy::budget;
}

}  // namespace xhat
