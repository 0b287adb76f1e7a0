// Reverse mode through loops and branches.
#pragma once
#include "ad/reverse/gradient.h"

namespace xhat {

// The program with cotangents and gradients, and each block's op differentiated by what in it depends on the inputs asked for. There are
// no backward steps: who runs the program notes which blocks ran, and runs their backwards the other way round
// (expr/eval/run_steps.h), so that every loop is undone over the iterations that it took. Throws Error where p has gradients already.
Program gradient_of_steps(const Program& p, const GradientOptions& options);

}  // namespace xhat
