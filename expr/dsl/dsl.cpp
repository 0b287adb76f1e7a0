// The handles of the DSL: nodes of shared ownership, made by the operators and functions of expr/dsl/dsl.h.
// Turning them into a tree is expr/dsl/dsl_tree.cpp.
#include "expr/dsl/dsl.h"

#include <fmt/format.h>

#include <cmath>
#include <unordered_set>

#include "expr/core/syntax.h"
#include "expr/dsl/dsl_state.h"

namespace xhat::dsl {

using detail::CallState;
using detail::check_name;
using detail::DimState;
using detail::make_node;
using detail::Node;
using detail::NodePtr;
using detail::OpState;
using detail::TensorState;

void detail::check_name(const std::string& what, const std::string& name) {
  if (ast::is_valid_name(name)) return;
  throw Error(what + " \"" + name +
              "\" has no valid name; names are made of letters, digits and _, do not start " +
              "with a digit, and are not if then else let in inf nan true false");
}

std::string detail::prefix(const Where& where) { return where.line() > 0 ? fmt::format("{}:{}: ", where.file_name(), where.line()) : ""; }

NodePtr detail::make_node(ast::Kind kind, std::string text, std::vector<NodePtr> args) {
  auto node = std::make_shared<Node>();
  node->kind = kind;
  node->text = std::move(text);
  node->arg_count = args.size();
  node->children = std::move(args);
  return node;
}

namespace {

Expr number(bool negative, const std::string& text) {
  NodePtr node = make_node(ast::Kind::number, text, {});
  return Expr(negative ? make_node(ast::Kind::unary, "-", {node}) : node);
}

// The shortest text that reads back as the same value; 2.0 keeps its point, since in the language 2 may be an
// integer.
template <class T>
Expr float_number(T value) {
  if (std::isnan(value)) return number(false, "nan");
  std::string text = fmt::format("{}", std::fabs(value));
  if (text.find_first_not_of("0123456789") == std::string::npos) text += ".0";
  return number(std::signbit(value), text);
}

// Does the expression, or a definition of a tensor that it reads, read `tensor`?
bool reads(const NodePtr& expression, const TensorState* tensor) {
  std::vector<const Node*> work{expression.get()};
  std::unordered_set<const void*> seen;
  while (!work.empty()) {
    const Node* node = work.back();
    work.pop_back();
    if (!seen.insert(node).second) continue;
    for (const NodePtr& child : node->children) work.push_back(child.get());
    if (!node->tensor || !seen.insert(node->tensor.get()).second) continue;
    if (node->tensor.get() == tensor) return true;
    for (const NodePtr& part : node->tensor->parts()) work.push_back(part.get());
  }
  return false;
}

}  // namespace

// Literals.
Expr Expr::of_bool(bool value) { return Expr(make_node(ast::Kind::boolean, value ? "true" : "false", {})); }
Expr Expr::of_integer(const std::string& digits) {
  bool negative = digits.starts_with('-');
  return number(negative, digits.substr(negative));
}
Expr::Expr(double value) : Expr(float_number(value)) {}
Expr::Expr(float value) : Expr(float_number(value)) {}

Expr& Expr::operator+=(const Expr& other) { return *this = *this + other; }
Expr& Expr::operator-=(const Expr& other) { return *this = *this - other; }
Expr& Expr::operator*=(const Expr& other) { return *this = *this * other; }
Expr& Expr::operator/=(const Expr& other) { return *this = *this / other; }

Expr Type::operator()(const Expr& value) const {
  return function(std::string(name_of(dtype)).c_str(), {value});
}

// Names.
namespace {

Expr dim_expr(const std::string& name, NodePtr definition, const Where& where = {}) {
  check_name("a dim", name);
  auto node = std::make_shared<Node>();
  node->kind = ast::Kind::name;
  node->text = name;
  if (definition) node->dim = std::make_shared<DimState>(DimState{name, std::move(definition), where});
  return Expr(node);
}

Expr axis_expr(const std::string& name) {
  check_name("an axis", name);
  auto node = std::make_shared<Node>();
  node->kind = ast::Kind::name;
  node->text = name;
  node->is_axis = true;
  return Expr(node);
}

}  // namespace

Dim::Dim(const std::string& name) : expr_(dim_expr(name, nullptr)) {}
Dim::Dim(const std::string& name, const Expr& definition, Where where) : expr_(dim_expr(name, definition.node(), where)) {}
Axis::Axis(const std::string& name) : expr_(axis_expr(name)) {}

Range::Range(const Axis& a) : axis(static_cast<Expr>(a).node()) {}
Range in(const Axis& axis, const Expr& begin, const Expr& end) {
  Range range(axis);
  range.begin = begin.node();
  range.end = end.node();
  return range;
}

// Tensors.
Tensor::Tensor(const std::string& name, Where where) : state_(std::make_shared<TensorState>()) {
  check_name("a tensor", name);
  state_->name = name;
  state_->where = where;
}

Tensor::operator Expr() const {
  auto node = std::make_shared<Node>();
  node->kind = ast::Kind::name;
  node->text = state_->name;
  node->tensor = state_;
  return Expr(node);
}

Access::Access(std::shared_ptr<TensorState> tensor, std::vector<Subscript> subscripts)
    : tensor_(std::move(tensor)), subscripts_(std::move(subscripts)) {}

Expr Access::read(NodePtr outside) const {
  auto node = std::make_shared<Node>();
  node->kind = subscripts_.empty() ? ast::Kind::name : ast::Kind::read;
  node->text = tensor_->name;
  node->tensor = tensor_;
  for (const Subscript& s : subscripts_) {
    if (s.begin)
      throw Error("a range stands in a read of " + tensor_->name +
                  "; in(…) belongs to definitions and reductions");
    node->children.push_back(s.axis);
  }
  node->arg_count = node->children.size();
  if (outside) {
    if (subscripts_.empty())
      throw Error("otherwise(…) of the scalar " + tensor_->name + ": it has no outside");
    node->has_otherwise = true;
    node->children.push_back(std::move(outside));
  }
  return Expr(node);
}

void Access::define(const Expr& body, const Where& where) const {
  const std::string& name = tensor_->name;
  const std::string at = detail::prefix(where);
  if (tensor_->role != TensorState::Role::undefined) {
    throw Error(at + name + " is " + tensor_->role_text() + " already and cannot be defined (again); use a new tensor");
  }
  for (const Subscript& s : subscripts_) {
    if (s.axis->is_axis) continue;
    throw Error(at + "the left side of the definition of " + name + " takes axes only, as in " + name + "(i, in(j, 0, N)) = …");
  }
  bool itself = reads(body.node(), tensor_.get());
  for (const Subscript& s : subscripts_)
    itself = itself || (s.begin && (reads(s.begin, tensor_.get()) || reads(s.end, tensor_.get())));
  // Refusing cycles here is also what lets shared ownership work: there are none among the nodes.
  if (itself) throw Error(at + name + " is defined by itself: its definition reads " + name + ", or a tensor that does");
  tensor_->role = TensorState::Role::defined;
  if (where.line() > 0) tensor_->where = where;
  for (const Subscript& s : subscripts_) tensor_->axes.push_back({s.axis->text, s.begin, s.end});
  tensor_->body = body.node();
}

Tensor Call::result(const std::string& name) {
  Tensor tensor(name);
  tensor.state()->role = TensorState::Role::result;
  tensor.state()->call = state_;
  state_->results.push_back(name);
  return tensor;
}

Call call(const Op& op, const std::vector<Expr>& arguments) {
  auto state = std::make_shared<CallState>();
  state->callee = op.tree();
  state->name = op.name();
  for (const Expr& argument : arguments) state->arguments.push_back(argument.node());
  return Call(state);
}

Call::operator Expr() const {
  auto node = std::make_shared<Node>();
  node->kind = ast::Kind::call;
  node->text = state_->name;
  node->children = state_->arguments;
  node->arg_count = node->children.size();
  node->callee = state_->callee;
  return Expr(node);
}

// Operators.
Expr unary(const char* sign, const Expr& a) { return Expr(make_node(ast::Kind::unary, sign, {a.node()})); }
Expr binary(const char* sign, const Expr& a, const Expr& b) {
  return Expr(make_node(ast::Kind::binary, sign, {a.node(), b.node()}));
}
Expr select(const Expr& condition, const Expr& then, const Expr& otherwise) {
  return Expr(make_node(ast::Kind::choose, "", {condition.node(), then.node(), otherwise.node()}));
}
Expr function(const char* name, const std::vector<Expr>& arguments) {
  if (!ast::is_function_name(name))
    throw Error(std::string(name) + " is no function of the language; ops are called by call()");
  std::vector<NodePtr> args;
  for (const Expr& argument : arguments) args.push_back(argument.node());
  return Expr(make_node(ast::Kind::call, name, std::move(args)));
}
Expr reduction(const char* name, Ranges axes, const NodePtr& condition, const Expr& body) {
  if (axes.size() == 0) throw Error(std::string(name) + " needs at least one axis");
  auto node = std::make_shared<Node>();
  node->kind = ast::Kind::reduce;
  node->text = name;
  node->arg_count = 1;
  // In the order of the text, which is the order in which definitions are found.
  for (const Range& range : axes) {
    node->axes.push_back({range.axis->text, range.begin != nullptr});
    if (range.begin) node->children.insert(node->children.end(), {range.begin, range.end});
  }
  node->has_condition = condition != nullptr;
  if (condition) node->children.push_back(condition);
  node->children.push_back(body.node());
  return Expr(node);
}

// Ops.
Op::Op(const std::string& name, Where where) : state_(std::make_shared<OpState>()) {
  check_name("an op", name);
  if (ast::is_function_name(name) || ast::is_reduction_name(name))
    throw Error(name + " is built in; give the op another name");
  state_->name = name;
  state_->where = where;
}
const std::string& Op::name() const { return state_->name; }

Tensor Op::input(const std::string& name, DType type, const std::vector<Expr>& extents) {
  Tensor tensor(name);
  TensorState& state = *tensor.state();
  state.role = TensorState::Role::input;
  state.type = type;
  for (const Expr& extent : extents) state.extents.push_back(extent.node());
  state_->inputs.push_back(tensor.state());
  return tensor;
}
Tensor Op::constant(const std::string& name, DType type, const std::vector<Expr>& extents) {
  Tensor tensor = input(name, type, extents);
  tensor.state()->constant = true;
  return tensor;
}
void Op::output(const Tensor& tensor) { state_->outputs.push_back(tensor.state()); }

Tensor Op::cotangent(const Tensor& output, const std::string& name) {
  Tensor tensor(name.empty() ? "d" + output.state()->name : name);
  tensor.state()->role = TensorState::Role::cotangent;
  state_->cotangents.push_back({output.state(), tensor.state()});
  return tensor;
}
void Op::gradient(const Tensor& input, const Tensor& gradient) {
  state_->gradients.push_back({input.state(), gradient.state()});
}

}  // namespace xhat::dsl
