// Forward mode through one definition: the tangent of its tensor from the tangents of the tensors it reads.
//   y[i] = sum(k: x[i,k] * w[k])   =>   t_y[i] = sum(k: t_x[i,k] * w[k] + x[i,k] * t_w[k])
// The rows of ops.def are those of the reverse sweep (ad/common/partials.h), and so is the treatment of conditions
// (ad/common/guards.h), so that <u, J v> is <J^T u, v>: a tangent is zero where the path to it is not taken, whatever the
// partials are there; ties of an extreme give the mean of their tangents.
#pragma once
#include <vector>

#include "ad/common/differentiation.h"
#include "expr/index/expand_calls.h"

namespace xhat {

// tensor: holds the tangent; kNoTensor: it is zero. where: over axes, one per dimension; it is zero where one of
// these fails.
struct Tangent {
  TensorId tensor = kNoTensor;
  std::vector<Id> axes;
  Literals where;
};
using Tangents = std::vector<Tangent>;  // per tensor of the program

// Appends to d.derived what computes the tangent of the definition's target; wanted is its name. The definition
// is no call, and its target is active.
Tangent push_forward(Differentiation& d, const Tangents& tangents, const Definition& definition,
                     const std::string& wanted);

}  // namespace xhat
