// One direction of a derived op, planned as it would run at these sizes: for reports.
#pragma once
#include "fusion/library/library_plan.h"
#include "runtime/call/compile.h"
#include "runtime/explain/explain.h"

namespace xhat {

struct PlannedDirection {
  Program program;  // as it was planned: sums may be split, operands of library calls have definitions
  KernelPlan plan;
  std::vector<std::optional<LibraryCall>> calls;  // per kernel
  int reductions = 0;                             // before any was split or taken in steps
  bool rewritten = false;                         // for these sizes
};
// direction: of derivation.program, by infer_program, forward_program or backward_program. sizes: all dims. Throws Error for sizes that
// kernels cannot have.
PlannedDirection plan_direction(Program direction, const Derivation& derivation, const CompileOptions& options, const DimValues& sizes);

// What an explanation was made from: planning a large program takes long, so it is done once.
struct ExplainedParts {
  Derivation derivation;
  PlannedDirection forward, backward;  // the forward that keeps the stash; the backward is empty without one
};
Explanation explain(const Program& op, const CompileOptions& options, const DimValues& given, ExplainedParts& parts);

}  // namespace xhat
