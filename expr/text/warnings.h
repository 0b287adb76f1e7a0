// What the language allows and its author hardly meant: inputs that nothing reads, definitions that no output needs, casts of a quotient of
// integers that is always 0 (f32(n/N), where f32(n)/N is meant), inout parameters whose name goes to other storage.
#pragma once
#include <string>
#include <vector>

#include "expr/core/program.h"
#include "expr/text/ast.h"

namespace xhat {

struct Warning {
  std::string message;
  Pos pos;
};
// Of one op or program of the file, in the order of the text. op: what it was elaborated to.
std::vector<Warning> warnings_of(const ast::File& file, const Program& op);
// "FILE:4:3: warning: MESSAGE", the line and a caret.
std::string located(const Warning& w, const std::string& file, const std::string& text);

}  // namespace xhat
