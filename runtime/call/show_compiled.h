// XHAT=compiles: a line on standard error for each direction of an op that is made ready, with what was compiled and why.
#pragma once
#include <string>

#include "runtime/call/op_plans.h"

namespace xhat::runtime {

// Why a direction with these sizes was not there: of the one that was made before it in the same list, what differs. again: the op has made
// this phase for another choice of what is kept.
std::string cause_of(const ReadyList& list, const DimValues& dims, bool again);

// "xhat: f_forward at N=4: compiled 2 kernels, loaded 1, had 3 in memory, 41 ms: first call"; then, of each kernel whose code is slower than was
// planned, "xhat: f_forward: kernel y: its code is scalar: Halide's message"
void show_compiled(const std::string& direction, const Direction& made, const std::string& cause);

}  // namespace xhat::runtime
