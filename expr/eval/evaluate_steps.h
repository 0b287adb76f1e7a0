// Runs programs with loops and branches by the evaluator: see run_steps.h.
#pragma once
#include "expr/eval/evaluate.h"

namespace xhat {

// As evaluate(), of a program that has steps.
Arrays evaluate_steps(const Program& p, const Arrays& inputs, const DimValues& dims, const EvaluateOptions& options);

}  // namespace xhat
