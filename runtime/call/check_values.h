// CompileOptions::check_values: looks at the results of a call, and says where a NaN or an infinity among them comes from.
#pragma once
#include "expr/core/array.h"
#include "runtime/call/op_plans.h"

namespace xhat::runtime {

// Throws NonFinite (expr/eval/nonfinite.h) if any of the results is not finite. direction: what ran, with its inputs, among them the stash.
// written: what the op's definitions and their gradient need, inputs and cotangents; may be empty, then only the direction is looked into.
void check_values(const OpPlan& plan, const Program& direction, const DimValues& dims, const Arrays& inputs, const Arrays& written,
                  const Arrays& results);

}  // namespace xhat::runtime
