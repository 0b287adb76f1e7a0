// Programs in which some definitions were derived and others written: what vjp, jvp, hvp, jacobian and hessian make, and lazy gradients.
// The derived ones are the backward of what they were derived of, and are simplified like one.
//
//   op f_vjp(x: f32[N,D], dy: f32[N]) -> (y, grad_x) {          y[n] = log-sum-exp of x[n,d]
//     …                                                         written, and stays as it is
//     d_m[n] = dy[n] - sum(d: d_y_sum[n] * exp(x[n,d] - m[n]))  derived, and zero
//     grad_x[n,d] = d_y_sum[n] * exp(x[n,d] - m[n]) + (if x[n,d] == m[n] then d_m[n] / m_ties[n] else 0)
//   }
//     =>  grad_x[n,d] = dy[n] / y_sum[n] * exp(x[n,d] - m[n])
#pragma once
#include <functional>

#include "expr/core/program.h"

namespace xhat::runtime {

// Is any definition of the forward derived?
bool has_derivatives(const Program& p);

// Derived definitions go through the algebra of real numbers (cse/algebra, cse/share), as if the forward kept for them whatever it
// computes: all of them run in one call. Written ones keep their values to the bit, also those that read derived ones.
// normal_form: brings a program with a backward into the form of auto_inliner. Needs: calls expanded.
// Not for what is differentiated again: where an output is read in place of what it was made of (x^2 is abs(y)^(2/3) where y is x^3), the
// derivative of the one is infinite where that of the other is 0.
using NormalForm = std::function<Program(const Program&)>;
Program with_simple_derivatives(const Program& p, const NormalForm& normal_form);

}  // namespace xhat::runtime
