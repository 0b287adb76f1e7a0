// The classic policy on programs of ours: every definition is an op, its kind is read off its relations, and the groups
// that relay_groups finds are the kernels.
//
//   m[n] = max(d: x[n,d])                      {m}
//   e[n,d] = exp(x[n,d] - m[n])                {e}       a result of one kernel, an input of two
//   s[n] = sum(d: e[n,d])                      {s}
//   y[n,d] = e[n,d] / s[n]                     {y}
//
// So definitions must stand as they were written: the form that the other passes work on (cse/normalize/auto_inliner) has dissolved
// them. Inside a group maps are then inlined, and only there.
#pragma once
#include "expr/core/program.h"
#include "fusion/plan/plan.h"

namespace xhat {

// The planned program with its forward definitions as `written` (the same op before they were inlined; calls expanded)
// and every reduction a definition of its own. What planning added, stashes, stays; so does the backward, which nobody
// wrote. Keeps values to the bit.
Program with_written_ops(const Program& planned, const Program& written);

// For one direction's program (fusion/plan/plan.h): the program with groups inlined, and the groups, for FusionOptions::groups.
struct RelayKernels {
  Program program;
  std::vector<FusionGroup> groups;
  std::string dump;  // the limits; every op with its kind, post-dominator and group (fusion/relay/relay_text.h)
};
RelayKernels relay_kernels(const Program& direction, const fusion::RelayOptions& options = {});

// For the planner, if the options ask for this policy: turns both to that program and its groups. What it dumps,
// else nothing.
std::string group_by_policy(Program& direction, FusionOptions& options);

}  // namespace xhat
