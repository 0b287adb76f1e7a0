// Which stages a value needs, whatever its conditions say. Halide asks for less of a stage that is read in one branch of a `select`: it
// leaves it out where the condition is known to fail, and lets a block of it begin where the condition first holds. Both go wrong: the
// pass that leaves out stages (SkipStages) fails on conditions of computed floats, such as isfinite(max(…)), and a block that is promised
// to have 8 elements has none for the last of them if it begins at the second. Conditions are chosen lane by lane here, and spare no work.
#pragma once
#include <string>
#include <vector>

#include "Halide.h"

namespace xhat::runtime {

// The value, which needs these reads in any case.
Halide::Expr reading_always(Halide::Expr value, const std::vector<Halide::Expr>& reads);

// The values of a stage, which need every stage in any case that they read at all, but for the stage itself.
std::vector<Halide::Expr> reading_stages_always(std::vector<Halide::Expr> values, const std::string& itself);

}  // namespace xhat::runtime
