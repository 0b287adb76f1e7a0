// Runs an imperative program as it is written: every variable is memory, assignments overwrite it, views share it. This is what a program
// means; what functionalizing makes of it is compared with this in tests.
//
// Floats are computed in double, whatever is declared, as evaluate() does with Rounding::exact.
#pragma once
#include "expr/core/array.h"
#include "expr/index/dims.h"
#include "expr/text/ast.h"

namespace xhat {

// The outputs by name, and the parameters marked inout. inputs: every parameter by name. dims: every dim of the program. Throws Error for
// what goes wrong at run time: an index outside, shapes that do not fit, a slice with a step below 1. What is wrong whatever the data is
// found by elaborate(), not here.
Arrays interpret(const ast::File& file, const ast::Op& program, const Arrays& inputs, const DimValues& dims);

}  // namespace xhat
