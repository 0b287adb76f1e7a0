// From the nodes of the C++ DSL to those of a tree, and the ops of one file into another. Private to expr/dsl.
#pragma once
#include <string>

#include "expr/dsl/dsl_state.h"

namespace xhat::dsl {

// The expression as a tree: every use of a shared node is written out, since the scopes of its uses may differ. of: "op f", for messages;
// program: may it hold what only programs have (views, slices, calls in expressions)?
ast::Ref write_tree(ast::File& file, const detail::NodePtr& root, const std::string& of, bool program);

// The op or prog of this name; null: there is none.
const ast::Op* find_op(const ast::File& file, const std::string& name);
// Appends the ops of another file, except those that are here already.
void append_callee(ast::File& file, const ast::File& callee);

}  // namespace xhat::dsl
