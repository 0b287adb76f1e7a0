#include "expr/dsl/elaborated.h"

#include <utility>

#include <fmt/format.h>

#include "expr/dsl/dsl_state.h"
#include "expr/text/elaborate.h"
#include "expr/text/errors.h"

namespace xhat::dsl {
namespace {

void lines_below(const std::vector<ast::Statement>& statements, std::vector<int>& lines) {
  for (const ast::Statement& s : statements) {
    lines.push_back(s.pos.line);
    lines_below(s.statements, lines);
    lines_below(s.otherwise, lines);
  }
}

// The op or gradient on whose lines the error is: the last one that begins before it.
const ast::Op* op_at(const ast::File& file, int line) {
  const ast::Op* found = nullptr;
  for (const ast::Op& op : file.ops)
    if (op.pos.line <= line && (!found || found->pos.line <= op.pos.line)) found = &op;
  return found;
}

Where place_of(const ast::File& parsed, const std::string& name, const Places& places, Pos error) {
  const ast::Op* op = op_at(parsed, error.line);
  if (!op || op->name != name) return places.whole;  // in an op that it calls
  const std::vector<Where>& known = op->kind == ast::Op::Kind::grad ? places.gradient : places.statements;
  std::vector<int> lines;
  lines_below(op->body.statements, lines);
  Where found = places.whole;
  for (size_t i = 0; i < lines.size() && i < known.size() && lines[i] <= error.line; ++i)
    if (known[i].line() > 0) found = known[i];
  return found;
}

// The errors of the printed text, at their places there and in the caller's source. said: in the place of the message, if there is one error.
[[noreturn]] void fail_at(const ast::File& parsed, const std::vector<Error>& errors, const std::string& said, const std::string& text,
                          const std::string& name, const Places& places) {
  std::vector<Error> all;
  for (const Error& e : errors) {
    const std::string& message = errors.size() == 1 && !said.empty() ? said : e.message();
    all.push_back(Error(message, e.pos()).located(detail::prefix(place_of(parsed, name, places, e.pos())) + name, text));
  }
  throw_all(std::move(all));
}

Program op_of(const ast::File& tree, const std::string& name) {
  const Module module = elaborate(tree);
  const Program* program = module.find(name);
  if (!program) throw Bug("elaborate lost op " + name);
  return *program;
}

Program read(const std::string& text, const std::string& said, const std::string& name, const Places& places) {
  const std::shared_ptr<ast::File> parsed = ast::parse(text);
  try {
    return op_of(*parsed, name);
  } catch (const Error& error) {
    fail_at(*parsed, all_of(error), said, text, name, places);
  }
}

}  // namespace

Program read_back(const std::string& text, const std::string& name, const Places& places) { return read(text, "", name, places); }

Program elaborated(const ast::File& tree, const std::string& name, const Places& places) {
  std::string said;
  try {
    return op_of(tree, name);
  } catch (const Error& error) {  // which names the definition, but has no place
    said = error.message();
  }
  return read(ast::print(tree), said, name, places);
}

}  // namespace xhat::dsl
