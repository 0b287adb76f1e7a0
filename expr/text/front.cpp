// The front door: text to programs and back.
#include <fmt/format.h>

#include "expr/text/elaborate.h"
#include "expr/text/errors.h"
#include "expr/text/print_steps.h"
#include "expr/text/reify_expression.h"

namespace xhat {

Module parse(const std::string& text, const std::string& file) {
  try {
    return elaborate(*ast::parse(text, file));
  } catch (const Errors& errors) {
    throw errors.located(file, text);
  } catch (const Error& error) {
    throw error.located(file, text);
  }
}

Program parse_op(const std::string& text, const std::string& op_name) {
  Module module = parse(text);
  if (module.ops.empty()) throw Error("the text holds no op");
  if (op_name.empty()) return *module.ops.back();
  const Program* found = module.find(op_name);
  if (!found) {
    std::string names;
    for (const auto& op : module.ops) names += (names.empty() ? "" : ", ") + op->name;
    throw Error(fmt::format("there is no op {}; there are: {}", op_name, names));
  }
  return *found;
}

std::string print(const Program& p) { return p.steps ? print_steps(p) : ast::print(*reify(p)); }

std::string print(const Program& p, Id expression) {
  ast::File file;
  std::vector<AxisRange> scope;
  for (Id axis : (*p.arena)[expression].free_axes()) scope.push_back({axis, kNone, kNone});
  ast::Ref ref = reify_expression(p, file, expression, scope, false);
  return ast::print(file, ref);
}

std::string print(const Program& p, const Definition& d) {
  ast::File file;
  ast::Op op;
  op.name = p.name;
  op.body.statements.push_back(reify_statement(p, file, d));
  file.ops.push_back(std::move(op));
  // The statement is the line after the head.
  std::string text = ast::print(file);
  size_t begin = text.find_first_not_of(' ', text.find('\n') + 1);
  return text.substr(begin, text.find('\n', begin) - begin);
}

}  // namespace xhat
