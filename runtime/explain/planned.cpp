#include "runtime/explain/planned.h"

#include "expr/index/size_limits.h"
#include "fusion/plan/for_sizes.h"
#include "fusion/relay/relay_kernels.h"
#include "runtime/call/passes.h"

namespace xhat {

PlannedDirection plan_direction(Program direction, const Derivation& derivation, const CompileOptions& options, const DimValues& sizes) {
  PlanRequest request = runtime::request_of(options, options.target);
  group_by_policy(direction, request, derivation.opaque_nodes);
  check_kernel_sizes(direction, sizes);
  PlannedDirection made;
  made.reductions = distinct_reductions(direction);
  const size_t definitions = direction.forward.definitions.size();
  direction = rewritten_for_sizes(direction, sizes, request);
  made.rewritten = direction.forward.definitions.size() != definitions;
  LibraryOptions libraries;  // all libraries, because the machine that runs the op may have them
  libraries.use = options.target == Target::cuda ? options.libraries : LibraryUse::off;
  LibraryPlan planned = plan_with_libraries(direction, sizes, request, libraries);
  made.program = std::move(planned.program);
  made.plan = std::move(planned.plan);
  made.calls = std::move(planned.calls);
  return made;
}

}  // namespace xhat
