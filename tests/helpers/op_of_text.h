// One op of a text that holds many, of which several tests take one each. Header only.
#pragma once
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "expr/text/ast.h"
#include "expr/text/elaborate.h"
#include "expr/text/elaborate_scope.h"

namespace xhat::testing {

// As parse_op(text, name), but only the op and what it calls is made of the text: 60 imperative programs take a second.
inline Program op_of_text(const std::string& text, const std::string& name) {
  ast::File file = *ast::parse(text);
  std::set<std::string> needed = {name};
  for (size_t before = 0; before != needed.size();) {
    before = needed.size();
    for (const ast::Op& op : file.ops) {
      if (!needed.contains(op.name)) continue;
      std::vector<ast::Ref> below;
      collect_below(file, op.body.statements, below);
      if (op.backward) collect_below(file, op.backward->statements, below);
      for (ast::Ref r : below)
        if (file.nodes[r].kind == ast::Kind::call) needed.insert(file.nodes[r].text);
    }
  }
  std::erase_if(file.ops, [&](const ast::Op& op) { return !needed.contains(op.name); });
  const Module module = elaborate(file);
  const Program* found = module.find(name);
  if (!found) throw std::runtime_error("there is no op " + name);
  return *found;
}

}  // namespace xhat::testing
