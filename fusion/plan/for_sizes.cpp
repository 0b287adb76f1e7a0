#include "fusion/plan/for_sizes.h"

#include "expr/core/mostly_zero.h"
#include "fusion/plan/blocks.h"
#include "fusion/plan/chunked_variance.h"
#include "fusion/plan/contraction_order.h"
#include "fusion/plan/every_kth.h"
#include "fusion/plan/few_pairs.h"
#include "fusion/plan/invariants.h"
#include "fusion/plan/planes.h"
#include "fusion/plan/prefix_sums.h"
#include "fusion/plan/product_columns.h"
#include "fusion/plan/quotient_ranges.h"
#include "fusion/plan/recurrences.h"
#include "fusion/plan/running_parts.h"
#include "fusion/plan/triangles.h"
#include "fusion/plan/whole_phases.h"

namespace xhat {

Program rewritten_for_sizes(const Program& p, const DimValues& sizes, const PlanRequest& request) {
  Program made = with_numbers_as_divisors(p, sizes);
  made = quotients_as_ranges(made, sizes);
  made = every_kth_alone(made, sizes, request);
  made = phases_made_whole(made, sizes, request);
  made = blocks_as_axes(made, sizes, request);
  made = few_pairs_where_read(made, sizes, request);
  made = products_in_order(made, sizes, request);
  made = products_in_triangles(made, sizes, request);
  made = running_sums_apart(made, sizes, request);
  made = ranges_as_recurrences(made, sizes, request);
  made = prefix_sums_by_steps(made, sizes, request);  // weights of pairs are no table then
  made = invariants_apart(made, sizes, request);
  if (request.machine.tiles_in_order) made = short_rows_as_planes(made, sizes, request);
  made = columns_by_price(made, sizes, request);
  // A chunk is what one tile reads twice while a processor's cache holds it.
  if (request.machine.tiles_in_order) made = variance_by_chunks(made, sizes, request);
  mark_mostly_zero(made);
  return made;
}

}  // namespace xhat
