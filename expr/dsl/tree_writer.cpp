#include "expr/dsl/tree_writer.h"

#include <algorithm>
#include <unordered_map>

namespace xhat::dsl {
namespace {

using namespace detail;

// The text is a tree. Beyond this (about 1 GB), sharing that the C++ had has exploded: x = x*x, 30 times.
constexpr size_t kMaxTreeNodes = 4'000'000;

// How many nodes the expression has when shared ones are written out at each use; at most kMaxTreeNodes + 1.
size_t tree_size(const NodePtr& root) {
  std::unordered_map<const Node*, size_t> size;
  std::vector<const Node*> work{root.get()};
  while (!work.empty()) {
    const Node* node = work.back();
    if (size.contains(node)) {
      work.pop_back();
      continue;
    }
    size_t total = 1;
    bool complete = true;
    for (const NodePtr& child : node->children) {
      auto it = size.find(child.get());
      if (it == size.end()) {
        work.push_back(child.get());
        complete = false;
      } else {
        total = std::min(total + it->second, kMaxTreeNodes + 1);
      }
    }
    if (!complete) continue;
    size[node] = total;
    work.pop_back();
  }
  return size[root.get()];
}

bool is_of_programs(const Node& node) {
  switch (node.kind) {
    case ast::Kind::slice:
    case ast::Kind::index:
    case ast::Kind::method:
    case ast::Kind::filled:
    case ast::Kind::range: return true;
    default: return node.callee != nullptr;
  }
}

ast::Ref one(ast::File& file, const Node& node, const ast::Ref* child) {
  if (node.absent) return ast::kAbsent;
  ast::Node result{node.kind, {}, node.text, {}, {}};
  for (const Node::Axis& axis : node.axes) {
    ast::Axis written{axis.name, ast::kAbsent, ast::kAbsent, {}};
    if (axis.ranged) {
      written.begin = *child++;
      written.end = *child++;
    }
    result.axes.push_back(std::move(written));
  }
  if (node.has_condition) result.condition = *child++;
  result.args.assign(child, child + node.arg_count);
  child += node.arg_count;
  if (node.has_otherwise) result.otherwise = *child;
  return file.add(std::move(result));
}

// Appends the ops of another file, except those that are here already.
void append(ast::File& file, const ast::File& other) {
  auto offset = static_cast<ast::Ref>(file.nodes.size());
  auto moved = [offset](ast::Ref ref) { return ref == ast::kAbsent ? ref : ref + offset; };
  auto move_axes = [&](std::vector<ast::Axis>& axes) {
    for (ast::Axis& axis : axes) axis.begin = moved(axis.begin), axis.end = moved(axis.end);
  };
  for (ast::Node node : other.nodes) {
    for (ast::Ref& arg : node.args) arg = moved(arg);
    move_axes(node.axes);
    node.condition = moved(node.condition);
    node.otherwise = moved(node.otherwise);
    file.nodes.push_back(std::move(node));
  }
  auto move_statements = [&](auto& self, std::vector<ast::Statement>& statements) -> void {
    for (ast::Statement& s : statements) {
      move_axes(s.axes);
      for (ast::Ref* ref : {&s.body, &s.place, &s.first, &s.last}) *ref = moved(*ref);
      self(self, s.statements);
      self(self, s.otherwise);
    }
  };
  for (ast::Op op : other.ops) {
    for (ast::Parameter& p : op.body.parameters) {
      for (ast::Ref& extent : p.extents) extent = moved(extent);
    }
    move_statements(move_statements, op.body.statements);
    file.ops.push_back(std::move(op));
  }
}

// The text of one op and its grad.
std::string text_of(const ast::File& file, const std::string& name) {
  ast::File part;
  part.nodes = file.nodes;
  for (const ast::Op& op : file.ops) {
    if (op.name == name) part.ops.push_back(op);
  }
  return ast::print(part);
}

}  // namespace

ast::Ref write_tree(ast::File& file, const NodePtr& root, const std::string& of, bool program) {
  if (tree_size(root) > kMaxTreeNodes)
    throw Error("an expression of " + of + " is too large once its shared parts are written out; give these tensors of their own");
  struct Visit {
    const Node* node;
    size_t next = 0;
  };
  std::vector<Visit> stack{{root.get()}};
  std::vector<ast::Ref> done;  // children that wait for their parent
  while (!stack.empty()) {
    Visit& top = stack.back();
    if (top.next < top.node->children.size()) {
      const Node* child = top.node->children[top.next++].get();
      stack.push_back({child});
      continue;
    }
    const Node* node = top.node;
    stack.pop_back();
    if (!program && is_of_programs(*node))
      throw Error(of + " holds " + (node->callee ? "a call of " + node->text + " in an expression; take call(…).result(…)" : "a view") +
                  "; only programs (Prog) have such");
    if (program && node->tensor)
      throw Error(of + " reads " + node->tensor->name + ", a tensor of an op; what a program reads are its Vars");
    const size_t first = done.size() - node->children.size();
    const ast::Ref ref = one(file, *node, done.data() + first);
    done.resize(first);
    done.push_back(ref);
  }
  return done[0];
}

const ast::Op* find_op(const ast::File& file, const std::string& name) {
  for (const ast::Op& op : file.ops)
    if (op.name == name && op.kind != ast::Op::Kind::grad) return &op;
  return nullptr;
}

void append_callee(ast::File& file, const ast::File& callee) {
  ast::File fresh = callee;
  std::erase_if(fresh.ops, [&](const ast::Op& op) {
    if (!find_op(file, op.name)) return false;
    if (text_of(file, op.name) != text_of(callee, op.name)) throw Error("two different ops named " + op.name + " are called");
    return true;
  });
  if (!fresh.ops.empty()) append(file, fresh);
}

}  // namespace xhat::dsl
