// Writes the steps after the passes of one direction to files: plan, specs, loops, assembly (XHAT=dump=DIR, docs/passes.md).
#pragma once
#include "fusion/plan/plan.h"
#include "runtime/call/debug.h"

namespace xhat::runtime {

// Writes NAME.plan.txt, and for each kernel, in order, NAME.<number>.<kernel>.spec.txt, .stmt and .s, for CPUs. p: the planned program.
void dump_kernels(const Debug& debug, const std::string& name, const Program& p, const KernelPlan& plan, const DimValues& sizes);

}  // namespace xhat::runtime
