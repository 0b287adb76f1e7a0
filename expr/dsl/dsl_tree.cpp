// From the DSL's shared nodes to a tree (ast::File), by loops only: first the order of the definitions, which
// is the order in which the outputs read them, then each definition written out.
#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "expr/dsl/dsl_state.h"
#include "expr/dsl/elaborated.h"
#include "expr/dsl/tree_writer.h"

namespace xhat::dsl {
namespace {

using namespace detail;
using TensorPtr = std::shared_ptr<TensorState>;

// One op or grad: the parameters it knows, and what its outputs need.
class BlockBuilder {
 public:
  BlockBuilder(ast::File& file, std::string op) : file_(file), op_(std::move(op)) {}

  void parameter(const TensorPtr& tensor, bool typed) {
    ast::Parameter p;
    p.name = tensor->name;
    p.type = tensor->type;
    p.constant = tensor->constant;
    p.typed = typed;
    if (typed) {
      for (const NodePtr& extent : tensor->extents) {
        find_dims(extent);
        p.extents.push_back(write(extent));
      }
    }
    block_.parameters.push_back(std::move(p));
    register_name(*tensor, tensor.get());
    known_.insert(tensor.get());
  }

  void output(const TensorPtr& tensor) {
    block_.outputs.push_back({tensor->name, {}});
    need(tensor);
  }

  ast::Block finish() {
    for (const DimState* dim : dims_) {
      places_.push_back(dim->where);
      ast::Statement statement;
      statement.kind = ast::Statement::Kind::dim;
      statement.targets = {{dim->name, {}}};
      statement.body = write(dim->definition);
      block_.statements.push_back(std::move(statement));
    }
    for (const TensorState* tensor : order_) {
      places_.push_back(tensor->where);
      block_.statements.push_back(definition(*tensor));
    }
    return std::move(block_);
  }

  // Of the statements, once it is finished.
  const std::vector<Where>& places() const { return places_; }

  // The ops that the block calls, in order.
  const std::vector<const CallState*>& calls() const { return calls_; }

 private:
  // Puts the tensor, after all that it reads, into order_.
  void need(const TensorPtr& root) {
    struct Visit {
      const TensorState* tensor;
      std::vector<TensorPtr> reads;
      size_t next = 0;
    };
    std::vector<Visit> stack;
    auto enter = [&](const TensorPtr& tensor) {
      if (!known_.insert(tensor.get()).second) return;
      check(*tensor);
      register_name(*tensor, tensor->call ? static_cast<const void*>(tensor->call.get()) : tensor.get());
      stack.push_back({tensor.get(), tensors_read(*tensor)});
    };
    enter(root);
    while (!stack.empty()) {
      Visit& top = stack.back();
      if (top.next < top.reads.size()) {
        enter(TensorPtr(top.reads[top.next++]));
        continue;
      }
      const TensorState* tensor = top.tensor;
      stack.pop_back();
      if (!tensor->call) {
        order_.push_back(tensor);
      } else if (called_.insert(tensor->call.get()).second) {
        calls_.push_back(tensor->call.get());
        order_.push_back(tensor);
      }
    }
  }

  void check(const TensorState& tensor) const {
    if (tensor.role == TensorState::Role::defined || tensor.role == TensorState::Role::result) return;
    if (tensor.role == TensorState::Role::undefined) {
      throw Error(prefix(tensor.where) + "op " + op_ + " needs " + tensor.name + ", which has no definition; write " + tensor.name +
                  "(…) = …");
    }
    throw Error("op " + op_ + " needs " + tensor.name + ", which is " + tensor.role_text() +
                (tensor.role == TensorState::Role::input ? " of another op" : "; only its op's gradient may read it"));
  }

  void register_name(const TensorState& tensor, const void* owner) {
    auto [it, added] = names_.insert({tensor.name, owner});
    if (!added && it->second != owner) throw Error("op " + op_ + " has two tensors named " + tensor.name);
  }

  // In the order of the text, each once. Finds the defined dims on the way.
  std::vector<TensorPtr> tensors_read(const TensorState& tensor) {
    std::vector<TensorPtr> result;
    std::unordered_set<const void*> seen;
    std::vector<const Node*> work;
    std::vector<NodePtr> parts = tensor.parts();
    for (size_t i = parts.size(); i-- > 0;) work.push_back(parts[i].get());
    while (!work.empty()) {
      const Node* node = work.back();
      work.pop_back();
      if (!seen.insert(node).second) continue;
      if (node->tensor && seen.insert(node->tensor.get()).second) result.push_back(node->tensor);
      if (node->dim) add_dim(node->dim.get());
      for (size_t i = node->children.size(); i-- > 0;) work.push_back(node->children[i].get());
    }
    return result;
  }

  void find_dims(const NodePtr& expression) {
    std::unordered_set<const Node*> seen;
    std::vector<const Node*> work{expression.get()};
    while (!work.empty()) {
      const Node* node = work.back();
      work.pop_back();
      if (!seen.insert(node).second) continue;
      if (node->dim) add_dim(node->dim.get());
      for (const NodePtr& child : node->children) work.push_back(child.get());
    }
  }

  // Recursion: dims that are defined by dims that are defined by dims; people write three or four.
  void add_dim(const DimState* dim) {
    auto [it, added] = dim_of_.insert({dim->name, dim});
    if (!added && it->second != dim) throw Error("op " + op_ + " has two definitions of dim " + dim->name);
    if (!added) return;
    find_dims(dim->definition);
    dims_.push_back(dim);
  }

  ast::Statement definition(const TensorState& tensor) {
    ast::Statement statement;
    if (tensor.call) {
      statement.kind = ast::Statement::Kind::call;
      for (const std::string& name : tensor.call->results) statement.targets.push_back({name, {}});
      ast::Node call{ast::Kind::call, {}, tensor.call->name, {}, {}};
      for (const NodePtr& argument : tensor.call->arguments) call.args.push_back(write(argument));
      statement.body = file_.add(std::move(call));
      return statement;
    }
    statement.targets = {{tensor.name, {}}};
    for (const TensorState::Axis& axis : tensor.axes) {
      ast::Axis written{axis.name, ast::kAbsent, ast::kAbsent, {}};
      if (axis.begin) {
        written.begin = write(axis.begin);
        written.end = write(axis.end);
      }
      statement.axes.push_back(std::move(written));
    }
    statement.body = write(tensor.body);
    return statement;
  }

  ast::Ref write(const NodePtr& root) { return write_tree(file_, root, "op " + op_, false); }

  ast::File& file_;
  std::string op_;
  ast::Block block_;
  std::unordered_set<const TensorState*> known_;
  std::map<std::string, const void*> names_;
  std::vector<const TensorState*> order_;
  std::map<std::string, const DimState*> dim_of_;
  std::vector<const DimState*> dims_;  // with a definition, each after those it needs
  std::set<const CallState*> called_;
  std::vector<const CallState*> calls_;
  std::vector<Where> places_;
};

ast::Op grad_of(ast::File& file, const OpState& op, Places& places) {
  BlockBuilder builder(file, op.name);
  for (const TensorPtr& input : op.inputs) builder.parameter(input, false);
  for (const TensorPtr& output : op.outputs) builder.parameter(output, false);
  for (const OpState::Pair& pair : op.cotangents) builder.parameter(pair.second, false);
  for (const OpState::Pair& pair : op.gradients) builder.output(pair.second);
  for (const CallState* call : builder.calls()) append_callee(file, *call->callee);
  ast::Op grad;
  grad.kind = ast::Op::Kind::grad;
  grad.name = op.name;
  grad.body = builder.finish();
  places.gradient = builder.places();
  return grad;
}

// In the order in which they stand in the list.
std::vector<OpState::Pair> in_order(const std::vector<OpState::Pair>& pairs, const std::vector<TensorPtr>& list, const std::string& what,
                                    const std::string& op) {
  std::vector<OpState::Pair> result;
  for (const TensorPtr& key : list) {
    for (const OpState::Pair& pair : pairs) {
      if (pair.first == key) result.push_back(pair);
    }
  }
  for (const OpState::Pair& pair : pairs) {
    if (std::find(list.begin(), list.end(), pair.first) == list.end()) {
      throw Error(pair.first->name + " is no " + what + " of op " + op);
    }
  }
  return result;
}

// With the ops that it calls, which come first.
std::shared_ptr<ast::File> tree_of(const OpState& op, Places& places) {
  if (op.outputs.empty()) throw Error(prefix(op.where) + "op " + op.name + " has no output yet; name it with output(…)");
  auto file = std::make_shared<ast::File>();
  BlockBuilder builder(*file, op.name);
  for (const TensorPtr& input : op.inputs) builder.parameter(input, true);
  for (const TensorPtr& output : op.outputs) builder.output(output);
  for (const CallState* call : builder.calls()) append_callee(*file, *call->callee);
  ast::Op result;
  result.name = op.name;
  result.body = builder.finish();
  places.whole = op.where;
  places.statements = builder.places();
  OpState own = op;
  own.cotangents = in_order(op.cotangents, op.outputs, "output", op.name);
  own.gradients = in_order(op.gradients, op.inputs, "input", op.name);
  if (find_op(*file, op.name))
    throw Error("op " + op.name + " calls an op of its name; an op cannot call itself, and two ops of a file have two names");
  file->ops.push_back(std::move(result));
  if (!own.gradients.empty()) {
    ast::Op grad = grad_of(*file, own, places);
    file->ops.push_back(std::move(grad));
  }
  return file;
}

}  // namespace

std::shared_ptr<ast::File> Op::tree() const {
  Places places;
  return tree_of(*state_, places);
}

Program Op::build() const {
  Places places;
  const std::shared_ptr<ast::File> tree = tree_of(*state_, places);
  return elaborated(*tree, name(), places);
}

}  // namespace xhat::dsl
