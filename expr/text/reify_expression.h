// Nodes back to surface syntax: one body, with `let` for every part that is used twice.
#pragma once
#include <span>

#include "expr/core/program.h"
#include "expr/text/ast.h"

namespace xhat {

// The expression in the file, such that elaborating it in the scope of these axes gives the node again. typed: also
// where nothing around it gives it a type (an untyped number becomes f32 by itself, and is cast if it is not).
ast::Ref reify_expression(const Program& p, ast::File& file, Id root, std::span<const AxisRange> scope,
                          bool typed);

// Would elaboration find this range, given that the axis is used in these places?
bool range_is_inferred(const Program& p, const AxisRange& r, std::span<const Id> places);

// Left axes with the ranges that inference would not find in the body.
std::vector<ast::Axis> reify_left_axes(const Program& p, ast::File& file, const std::vector<AxisRange>& axes,
                                       Id body);

// One definition as a statement.
ast::Statement reify_statement(const Program& p, ast::File& file, const Definition& d);

}  // namespace xhat
