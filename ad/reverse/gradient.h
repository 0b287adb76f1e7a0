// Reverse mode. Adds a cotangent `d<output>` per float output and, as backward definitions, `grad_<input>`
// for the inputs asked for:
//   y[i] = tanh(x[i])   =>   grad_x[i] = dy[i] * (1 - y[i]*y[i])
// Works on a program that has a backward already: its forward and backward are then one forward, with the
// cotangents among the inputs and the gradients among the outputs. So second derivatives are the same pass
// again.
#pragma once
#include <string>
#include <vector>

#include "expr/core/program.h"

namespace xhat {

struct GradientOptions {
  std::vector<std::string> wrt;  // inputs; empty: every float input that is not const
};

// Calls are expanded; an op that states its own gradient (`grad f(…)`) is differentiated by that.
// Throws Error for a name in wrt that is no input, not a float, or const.
Program gradient(const Program& p, const GradientOptions& options = {});

}  // namespace xhat
