// Errors with their place in the op's text.
#include "expr/text/ast.h"
#include "tools/commands.h"

namespace xhat::tool {
namespace {

// Where the op's name stands: errors about the op as a whole (its sizes, its data) are shown there.
Pos place_of(const Source& s) {
  auto file = ast::parse(s.text, s.file);
  Pos place;
  for (const ast::Op& op : file->ops)
    if (op.kind != ast::Op::Kind::grad && op.name == s.op.name) place = op.pos;
  return place;
}

}  // namespace

std::string located(const Error& e, const Source& s) {
  if (!std::string(e.what()).starts_with("error:")) return e.what();  // by those who threw it
  Pos place = e.pos().known() ? e.pos() : place_of(s);
  return Error(e.message(), place).located(s.file, s.text).what();
}

}  // namespace xhat::tool
