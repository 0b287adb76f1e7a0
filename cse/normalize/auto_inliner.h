// Brings a program into the normal form that the passes after it work on: a definition's body is either free of
// reductions (a map) or one reduction at the root, and maps disappear into their users.
//
//     e[n,d] = exp(x[n,d] - m[n])                   s[n] = sum(k: exp(x[n,k] - m[n]))
//     y[n,d] = e[n,d] / sum(k: e[n,k])       =>     y[n,d] = exp(x[n,d] - m[n]) / s[n]
#pragma once
#include <span>

#include "expr/core/program.h"
#include "expr/core/uses.h"

namespace xhat {

// lift_reductions, then inline_maps. Calls must be expanded. Keeps values exactly, names and order of outputs.
// keep: tensors that stay as they are, though they could be inlined: once stashes are chosen, they.
Program inline_injective(const Program& p, std::span<const TensorId> keep = {});

// Every map that is neither an output nor a gradient is substituted into its users, where that repeats no expensive work:
// into a reduction that would evaluate it once per step of an axis it does not depend on, only cheap ones go.
// Reductions of one region that are equal then become one.
Program inline_maps(const Program& p, std::span<const TensorId> keep = {});

// A map that is not substituted, and to the algebra is a tensor. (What is read within one kernel only is not written all the same.)
// - Over more than three tensors of its own size, read by several definitions: written once, it is one tensor to read, where the terms of a
//   stream that each layer adds to would be read again by all layers after it.
// - Read by a definition at several places (x[i-1] + x[i+1]), itself or through views (places_read), if computing it for each takes longer
//   than writing and reading it (kKept_ps): a stencil of a stencil. Substituted, a chain of such maps would grow without bound.
bool stays_written(Arena& a, const Uses& uses, const Definition& map);

// Picoseconds per element of evaluating a map's body once (reference prices of ops.def). The inliner and the stash
// planner ask the same function, or they would undo each other.
int64_t evaluation_cost_ps(const Arena& a, Id body);

// Is it at least that much? Looks at no more nodes than it takes to tell, so that it can be asked of every node of a long expression.
// visited, if given: counts them.
bool costs_at_least(const Arena& a, Id body, int64_t ps, int64_t* visited = nullptr);

}  // namespace xhat
