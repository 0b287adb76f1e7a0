// An op's own `grad f(x, y, dy) -> (dx)`, or its backward block, in place of its derivative, in both modes.
#pragma once
#include <vector>

#include "ad/common/differentiation.h"
#include "expr/index/expand_calls.h"

namespace xhat {

// One use of the op: its inputs are arguments, its outputs targets (tensors of d.program).

// Reverse mode: the rule's definitions, and its results as terms of the arguments' adjoints.
void pull_back_custom(Differentiation& d, const Program& op, const std::vector<TensorId>& arguments, const std::vector<TensorId>& targets);

// Forward mode: the rule is u -> J^T u, which is linear in u, so that J v is the derivative of <J^T u, v> by u:
//   dx[n] = u[n]*x[n]/y[n]   =>   t_y[n] = t_x[n]*x[n]/y[n]
// from: the tangents of the arguments (kNoTensor: zero); to: tensors for those of the targets (kNoTensor: not
// wanted). Throws Error where the rule is not linear in its cotangents.
void push_forward_custom(Differentiation& d, const Program& op, const std::vector<TensorId>& arguments,
                         const std::vector<TensorId>& targets, const std::vector<TensorId>& from, const std::vector<TensorId>& to);

}  // namespace xhat
