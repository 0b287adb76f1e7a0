// The expression half of the parser (expr/text/parse.cpp is the other: ops and statements).
#pragma once
#include "expr/text/cursor.h"

namespace xhat::ast {

// Reads one expression into the file, up to the first token that cannot continue it.
Ref parse_expression(Cursor& cursor, File& file);

// The left side of an assignment of a program: a name or a view of one, new axes with or without ranges in its brackets.
Ref parse_place(Cursor& cursor, File& file);

// name or `name in begin..end`; `what` names it in errors.
Axis parse_axis(Cursor& cursor, File& file, const std::string& what);

}  // namespace xhat::ast
