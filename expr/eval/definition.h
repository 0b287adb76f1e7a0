// What a program means, in the fewest lines: each element of each definition by itself, each expression by recursion. The evaluator
// (expr/eval/evaluate.h) does the same with blocks of elements at once; tests compare the two. For small programs and small tensors: a value
// that is used twice is computed twice.
#pragma once
#include "expr/eval/evaluate.h"

namespace xhat {

// Outputs and, if the cotangents are given, gradients, by name. inputs and dims as for evaluate(); types and shapes are not checked.
// Throws Error for a read outside a tensor and for argmax over nothing.
Arrays evaluate_by_definition(const Program& p, const Arrays& inputs, const DimValues& dims, Rounding rounding = Rounding::declared);

}  // namespace xhat
