// What becomes of an op behind the passes: on standard error, and in files where XHAT=dump=DIR asks for them (docs/passes.md).
#pragma once
#include "fusion/plan/plan.h"
#include "runtime/call/debug.h"
#include "runtime/device/device.h"

namespace xhat::runtime {

// A line about the processor, or the device behind the queue; each once in a process.
void show_device(const DeviceQueue& queue);

// Of one direction, p as it was planned: NAME.plan.txt, and for each kernel, in order, NAME.<number>.<kernel>.spec.txt, .stmt and .s, on
// a GPU .code in their place.
void show_kernels(const Debug& debug, const std::string& name, const Program& p, const KernelPlan& plan, const DimValues& sizes,
                  Target target);

// A line about a kernel that ran: what it took, and what it moved and computed by the plan.
void show_run(const std::string& direction, const Kernel& kernel, double ns);

}  // namespace xhat::runtime
