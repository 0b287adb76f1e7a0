// A straight run of definitions inside of loops, as an op of its own.
#pragma once
#include "expr/core/steps.h"
#include "expr/imperative/state.h"

namespace xhat::imperative {

// Reads x[t,...] with loop variables in front become the row's, where the row is inside for all iterations; other loop variables are
// scalars that the op is handed. `variables`: of all loops around; `loops`: those whose ranges are known before the run.
Block make_block(Context& c, const std::vector<Definition>& definitions, const std::vector<TensorId>& results,
                 const std::vector<AxisRange>& loops, const std::set<Id>& variables, const std::string& name);

}  // namespace xhat::imperative
