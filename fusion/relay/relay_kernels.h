// The classic policy on our programs: every definition is an op, its relations give its kind, and the groups of relay_groups are the kernels.
//
//   m[n] = max(d: x[n,d])                      {m}
//   e[n,d] = exp(x[n,d] - m[n])                {e}       a result of one kernel, an input of two
//   s[n] = sum(d: e[n,d])                      {s}
//   y[n,d] = e[n,d] / s[n]                     {y}
//
// It needs definitions as they were written; the normal form of the other passes (cse/normalize/auto_inliner) has inlined them. Maps are
// then inlined inside their group only.
#pragma once
#include "expr/core/program.h"
#include "fusion/plan/plan.h"

namespace xhat {

// The planned program with the forward definitions of `written` (the same op before inlining, calls expanded), every reduction a
// definition of its own. The stashes that planning added and the backward stay. Keeps values to the bit.
Program with_written_ops(const Program& planned, const Program& written);

// For one direction's program (fusion/plan/plan.h): the program with groups inlined, and the groups, for PlanRequest::groups.
struct RelayKernels {
  Program program;
  std::vector<FusionGroup> groups;
  std::string dump;  // the limits; every op with its kind, post-dominator and group (fusion/relay/relay_text.h)
};
// nodes: which tensors make up the nodes that nothing is fused with (ad/common/opaque_ops.h).
using OpaqueNodes = std::map<std::string, std::string>;
RelayKernels relay_kernels(const Program& direction, const fusion::RelayOptions& options = {}, const OpaqueNodes& nodes = {});

// For the planner, if the request is for this policy: turns both to that program and its groups. What it dumps, else nothing.
std::string group_by_policy(Program& direction, PlanRequest& request, const OpaqueNodes& nodes);

}  // namespace xhat
