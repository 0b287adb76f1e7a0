// Why one value of the forward is kept or not.
#pragma once
#include "cse/stash/stash_planner.h"

namespace xhat {

struct StashReason {
  StashCandidate candidate;
  std::vector<std::string> read_by;  // definitions of the backward, and values that are recomputed
  std::vector<std::string> made_of;  // values of the forward and inputs that recomputing it reads
  double cost_ns = 0;                // of the choice, as StashPlan's
  double other_ns = 0;               // of the cheapest choice with the other verdict; infinite: there is none
};

// Of the value of that name, in what plan_stash makes of the same program at these sizes. Throws Error, which names those that there are, if
// the backward needs none of that name.
StashReason stash_reason(const Program& p, const StashOptions& options, const MachineModel& machine, const DimValues& sizes,
                         const std::string& name);

}  // namespace xhat
