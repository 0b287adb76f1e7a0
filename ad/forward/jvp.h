// Products with an op's derivatives, without the Jacobian: each is an op of its own, made of definitions as any
// other, that can be printed, evaluated, compiled (CompileOptions::differentiate = false) and differentiated again.
//
//   op f(x: f32[N]) -> (y) { y[i] = tanh(x[i]) }
//   vjp:  op f_vjp(x: f32[N], dy: f32[N]) -> (y, grad_x)            J^T dy
//   jvp:  op f_jvp(x: f32[N], t_x: f32[N]) -> (y, jvp_y)            J t_x
//   hvp:  op f_hvp(x: f32[N], dy: f32[N], t_x: f32[N]) -> (hvp_x)   (d/dx of J^T dy) t_x
//
// Names that are taken get a number; inputs and outputs stand in the order given here, so that positions tell them
// too. Outputs and inputs that are no floats have neither tangents nor cotangents.
#pragma once
#include <string>
#include <vector>

#include "ad/reverse/gradient.h"

namespace xhat {

// Reverse mode as an op. Inputs: the op's, then the cotangent d<output> of every float output. Outputs: the op's, then
// grad_<input> for the inputs asked for. Shapes: a cotangent has its output's, a gradient its input's. Throws Error for a program with
// loops or branches that stay.
Program vjp(const Program& op, const GradientOptions& options = {});

struct JvpOptions {
  std::vector<std::string> wrt = {};  // inputs that move; empty: every float input that is not const
};

// Forward mode: one pass over the definitions, of the same cost as the op's own, whatever the number of outputs.
// Inputs: the op's, then the tangent t_<input> of every input that moves. Outputs: the op's, then jvp_<output>, the
// derivative of every float output along the tangents. Shapes: a tangent has that of what it belongs to.
// A program with a backward counts as one op, cotangents among its inputs and gradients among its outputs. Where ops
// that are called state their own gradient, that is transposed.
// Throws Error for a name in wrt that is no input, not a float, or const; and for a stated gradient that is not
// linear in its cotangents.
Program jvp(const Program& op, const JvpOptions& options = {});

struct HvpOptions {
  std::vector<std::string> wrt = {};    // gradients wanted; empty: of every float input that is not const
  std::vector<std::string> along = {};  // inputs that move; empty: every float input that is not const
};

// Forward over reverse: how the gradients of sum(output * cotangent) over all outputs change as the inputs move, which
// is the Hessian of that sum times the direction. Inputs: the op's, the cotangents, then the direction t_<input> of
// every input that moves. Outputs: hvp_<input> for the gradients wanted, of the shape of that input. Costs a small
// multiple of the gradient. Throws Error as jvp does.
Program hvp(const Program& op, const HvpOptions& options = {});

}  // namespace xhat
