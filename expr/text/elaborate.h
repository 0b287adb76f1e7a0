// Surface tree -> Program: scopes, types, ranges, dims, calls, bounds proofs. And back (reify), for printing.
#pragma once
#include <memory>

#include "expr/core/program.h"
#include "expr/text/ast.h"

namespace xhat {

// All ops of the file, in order, sharing one arena. Throws Error at the place in the text; Errors (expr/text/errors.h) where several
// definitions are wrong.
Module elaborate(const ast::File& file);

// Is it made of numbers alone, and one of them its result? Then it may be called within an expression, as functions are. Not if it states a
// gradient, which belongs to a call.
bool is_function_of_numbers(const Program& op);

// The tree of a program, with `let` for every non-leaf node that is used twice, so that elaborate(reify(p)) equals p.
// Ranges are written only where inference would not find them again.
std::shared_ptr<ast::File> reify(const Program& p);

}  // namespace xhat
