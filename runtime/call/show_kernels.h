// Shows what follows the passes of an op: plans, kernel specs, code, and kernels as they run. Prints to standard error by DEBUG or XHAT, and
// writes files by XHAT=dump=DIR (docs/passes.md).
#pragma once
#include "fusion/plan/plan.h"
#include "runtime/call/debug.h"
#include "runtime/device/device.h"

namespace xhat::runtime {

// Prints a line about the processor, or about the queue's device; one line each per process.
void show_device(const DeviceQueue& queue);

// Shows the plan of one direction (p is the program that was planned) as NAME.plan.txt, and each kernel, in order, as
// NAME.<number>.<kernel>.spec.txt, .stmt and .s; for a GPU, .code takes the place of the last two.
void show_kernels(const Debug& debug, const std::string& name, const Program& p, const KernelPlan& plan, const DimValues& sizes,
                  Target target);

// Prints a line about a kernel that ran: its time (ns), and the bytes and operations that the plan counts for it.
void show_run(const std::string& direction, const Kernel& kernel, double ns);

}  // namespace xhat::runtime
