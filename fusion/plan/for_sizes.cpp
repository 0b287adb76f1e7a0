#include "fusion/plan/for_sizes.h"

#include "fusion/plan/chunked_variance.h"
#include "fusion/plan/invariants.h"
#include "fusion/plan/prefix_sums.h"
#include "fusion/plan/quotient_ranges.h"

namespace xhat {

Program rewritten_for_sizes(const Program& p, const DimValues& sizes, const PlanRequest& request) {
  Program made = quotients_as_ranges(p, sizes);
  made = invariants_apart(made, sizes, request);
  made = prefix_sums_by_steps(made, sizes, request);
  // A chunk is what one tile reads twice while a processor's cache holds it.
  return request.machine.tiles_in_order ? variance_by_chunks(made, sizes, request) : made;
}

}  // namespace xhat
