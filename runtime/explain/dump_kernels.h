// What becomes of one direction behind the passes, step by step, in files: XHAT=dump=DIR (docs/passes.md).
#pragma once
#include "fusion/plan/plan.h"
#include "runtime/call/debug.h"

namespace xhat::runtime {

// NAME.plan.txt, and for each kernel, in order, NAME.<number>.<kernel>.spec.txt, .stmt and .s. p: as planned. On CPUs.
void dump_kernels(const Debug& debug, const std::string& name, const Program& p, const KernelPlan& plan, const DimValues& sizes);

}  // namespace xhat::runtime
