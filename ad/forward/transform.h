// Programs of whole derivatives, and of many calls in one: each an op of its own, made of definitions as any other.
//
//   op f(x: f32[N], s: f32) -> (y) { y[i] = s * tanh(x[i]) }
//   vmap {x}:   op f_vmap(x: f32[B,N], s: f32) -> (y)           y: [B,N]
//   jacobian:   op f_jacobian(x: f32[N], s: f32) -> (y, jac_y_x, jac_y_s)    jac_y_x: [N,N], of y's axes, then x's; jac_y_s: [N]
//   op g(x: f32[N]) -> (l) { l = sum(i: x[i]^3) }
//   hessian:    op g_hessian(x: f32[N]) -> (l, grad_x, hess_x_x)  hess_x_x: [N,N]
//
// All three throw Error for programs with loops or branches that stay.
#pragma once
#include <string>
#include <vector>

#include "expr/core/program.h"

namespace xhat {

struct VmapOptions {
  std::vector<std::string> inputs = {};  // that have a leading axis; empty: all
};

// The op for each element of a new first axis of these inputs; its dim is called B, or B1, … if the op has that. All outputs have the axis too.
// Throws Error for a name that is no input, and for ops that state their own gradient, which is of one call.
Program vmap(const Program& op, const VmapOptions& options = {});

struct JacobianOptions {
  std::vector<std::string> wrt = {};  // inputs; empty: every float input that is not const
};

// The derivative of every element of each float output along every element of these inputs, by forward mode: one tangent per element of an
// input. Outputs: the op's, then jac_<output>_<input>, input by input, of the shape of the output followed by that of the input. Throws as jvp().
Program jacobian(const Program& op, const JacobianOptions& options = {});

// The same of the gradient of an op with one float output, a scalar. Outputs: the op's, then grad_<input>, then hess_<input>_<other>, of the shape of
// the one followed by that of the other. Throws Error for other ops, and as jvp().
Program hessian(const Program& op, const JacobianOptions& options = {});

}  // namespace xhat
