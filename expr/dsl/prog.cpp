// Statements are noted in the block that is open: For, While and If run their bodies once, with a block of their own.
#include "expr/dsl/prog.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "expr/core/syntax.h"
#include "expr/dsl/elaborated.h"
#include "expr/dsl/tree_writer.h"

namespace xhat::dsl {

using detail::make_node;
using detail::NodePtr;

namespace detail {

struct Noted {
  ast::Statement::Kind kind = ast::Statement::Kind::assign;
  std::vector<std::string> targets;
  std::string sign;
  NodePtr place, body, first, last;  // as in ast::Statement
  std::shared_ptr<const ast::File> callee;
  std::vector<Noted> statements, otherwise;
  bool has_otherwise = false;
  Where where = {};
};

// Bodies of loops and branches that run in this thread, the innermost one last, each with a number of its own; 0: none.
struct Bodies {
  uint64_t last = 0;
  std::vector<uint64_t> running = {0};
};
Bodies& bodies() {
  thread_local Bodies held;
  return held;
}

struct ProgState {
  struct Parameter {
    std::string name;
    DType type;
    std::vector<NodePtr> extents;
    bool constant, inout;
  };
  std::string name;
  std::shared_ptr<const std::string> called;  // the same, which tells its variables from others
  Where where;
  std::vector<Parameter> parameters;
  std::vector<std::string> outputs;
  std::vector<Noted> statements;
  struct Open {
    std::vector<Noted>* block;
    uint64_t body;
  };
  std::vector<Open> open = {{&statements, bodies().running.back()}};  // the blocks around what is noted next

  void check_is_open(const Where& at) const {
    if (open.back().body != bodies().running.back())
      throw Error(prefix(at) + "this is a statement of prog " + name +
                  ", and the body that runs is of another prog; what stands in a body is of the prog whose For, While or If it belongs to");
  }
  void note(Noted statement) {
    check_is_open(statement.where);
    open.back().block->push_back(std::move(statement));
  }

  ProgState() = default;
  ProgState(const ProgState&) = delete;
  ProgState& operator=(const ProgState&) = delete;
};

}  // namespace detail

using detail::Noted;
using detail::ProgState;

namespace {

std::vector<NodePtr> nodes_of(const std::vector<Expr>& list) {
  std::vector<NodePtr> nodes;
  for (const Expr& e : list) nodes.push_back(e.node());
  return nodes;
}

NodePtr absent() {
  auto node = std::make_shared<detail::Node>();
  node->absent = true;
  return node;
}

// A node as it is made, of a program.
NodePtr of_program(const NodePtr& node, const std::shared_ptr<const std::string>& program) {
  std::const_pointer_cast<detail::Node>(node)->program = program;
  return node;
}
NodePtr name_node(const std::string& name, const ProgState& program) {
  return of_program(make_node(ast::Kind::name, name, {}), program.called);
}

// The statements of body, in a block of their own.
std::vector<Noted> noted(ProgState& program, const Prog::Body& body, const Where& where) {
  program.check_is_open(where);
  std::vector<Noted> statements;
  struct Open {
    ProgState& program;
    Open(ProgState& p, std::vector<Noted>& block) : program(p) {
      detail::Bodies& b = detail::bodies();
      b.running.push_back(++b.last);
      p.open.push_back({&block, b.last});
    }
    ~Open() {
      program.open.pop_back();
      detail::bodies().running.pop_back();
    }
  } open(program, statements);
  if (body) body();
  return statements;
}

// Writes what was noted as a tree.
class ProgTree {
 public:
  explicit ProgTree(const ProgState& program) : program_(program), file_(std::make_shared<ast::File>()) {}

  std::shared_ptr<ast::File> run() {
    ast::Op op;
    op.kind = ast::Op::Kind::prog;
    op.name = program_.name;
    for (const ProgState::Parameter& p : program_.parameters) {
      ast::Parameter parameter;
      parameter.name = p.name;
      parameter.type = p.type;
      parameter.constant = p.constant;
      parameter.inout = p.inout;
      for (const NodePtr& extent : p.extents) parameter.extents.push_back(written(extent));
      op.body.parameters.push_back(std::move(parameter));
    }
    for (const std::string& name : program_.outputs) op.body.outputs.push_back({name, {}});
    std::vector<ast::Statement> statements = list(program_.statements);
    std::vector<Where> places = std::move(places_.statements);
    for (const detail::DimState* dim : dims_) {
      places_.statements.push_back(dim->where);
      ast::Statement s;
      s.kind = ast::Statement::Kind::dim;
      s.targets = {{dim->name, {}}};
      s.body = write_tree(*file_, dim->definition, of(), true);
      op.body.statements.push_back(std::move(s));
    }
    places_.statements.insert(places_.statements.end(), places.begin(), places.end());
    places_.whole = program_.where;
    for (ast::Statement& s : statements) op.body.statements.push_back(std::move(s));
    if (find_op(*file_, program_.name))
      throw Error(of() + " calls an op of its name; a program cannot call itself (a loop repeats), and two of a file have two names");
    file_->ops.push_back(std::move(op));
    return file_;
  }
  const Places& places() const { return places_; }  // once it has run

 private:
  std::string of() const { return "prog " + program_.name; }

  ast::Ref written(const NodePtr& root) {
    if (!root) return ast::kAbsent;
    find_below(root);
    return write_tree(*file_, root, of(), true);
  }

  // Dims with definitions, and what is called.
  void find_below(const NodePtr& root) {
    std::unordered_set<const detail::Node*> seen;
    std::vector<const detail::Node*> work{root.get()};
    while (!work.empty()) {
      const detail::Node* node = work.back();
      work.pop_back();
      if (!seen.insert(node).second) continue;
      if (node->callee) append_callee(*file_, *node->callee);
      if (node->dim) add_dim(node->dim.get());
      if (node->program && node->program != program_.called)
        throw Error(detail::prefix(where_) + of() + " uses " + node->text + ", a variable of prog " + *node->program +
                    "; what a program reads are its own, and what another computes is a call of it");
      for (const NodePtr& child : node->children) work.push_back(child.get());
    }
  }
  void add_dim(const detail::DimState* dim) {
    auto [it, added] = dim_of_.insert({dim->name, dim});
    if (!added && it->second != dim) throw Error(of() + " has two definitions of dim " + dim->name);
    if (!added) return;
    find_below(dim->definition);
    dims_.push_back(dim);
  }

  std::vector<ast::Statement> list(const std::vector<Noted>& statements) {
    std::vector<ast::Statement> made;
    for (const Noted& n : statements) {
      places_.statements.push_back(n.where);
      where_ = n.where;
      ast::Statement s;
      s.kind = n.kind;
      for (const std::string& target : n.targets) s.targets.push_back({target, {}});
      if (n.callee) append_callee(*file_, *n.callee);
      s.sign = n.sign;
      s.place = written(n.place);
      s.first = written(n.first);
      s.last = written(n.last);
      s.body = written(n.body);
      s.statements = list(n.statements);
      s.otherwise = list(n.otherwise);
      s.has_otherwise = n.has_otherwise;
      made.push_back(std::move(s));
    }
    return made;
  }

  const ProgState& program_;
  Where where_ = program_.where;  // of the statement that is written
  std::shared_ptr<ast::File> file_;
  std::map<std::string, const detail::DimState*> dim_of_;
  std::vector<const detail::DimState*> dims_;
  Places places_;
};

}  // namespace

Subscript slice(const std::optional<Expr>& begin, const std::optional<Expr>& end, const std::optional<Expr>& step) {
  std::vector<NodePtr> parts;
  for (const std::optional<Expr>* part : {&begin, &end, &step}) parts.push_back(*part ? (*part)->node() : absent());
  return Subscript(Expr(make_node(ast::Kind::slice, "", std::move(parts))));
}

Var Var::brackets(const std::vector<Subscript>& subscripts) const {
  if (subscripts.empty()) return *this;
  const bool name = node_->kind == ast::Kind::name;
  std::vector<NodePtr> args;
  if (!name) args.push_back(node_);
  for (const Subscript& s : subscripts) args.push_back(s.begin ? make_node(ast::Kind::range, s.axis->text, {s.begin, s.end}) : s.axis);
  NodePtr made = make_node(name ? ast::Kind::read : ast::Kind::index, name ? node_->text : "", std::move(args));
  return {of_program(made, node_->program), program_};
}

Var Var::method(const char* name, const std::vector<Expr>& arguments) const {
  std::vector<NodePtr> args = nodes_of(arguments);
  args.insert(args.begin(), node_);
  return {make_node(ast::Kind::method, name, std::move(args)), program_};
}

Expr Var::otherwise(const Expr& outside) const {
  if (node_->kind != ast::Kind::read && node_->kind != ast::Kind::index)
    throw Error("otherwise(…) belongs to an element, as in x(i + 1).otherwise(0)");
  auto node = std::make_shared<detail::Node>();
  node->kind = node_->kind;
  node->text = node_->text;
  node->children = node_->children;
  node->arg_count = node_->arg_count;
  node->program = node_->program;
  node->children.push_back(outside.node());
  node->has_otherwise = true;
  return Expr(node);
}

void Var::assign(const char* sign, const Expr& value, const Where& where) const {
  if (!program_)
    throw Error(detail::prefix(where) + "a value is no place to assign to; what is assigned is a Var of a Prog, or a view of one");
  Noted s;
  s.place = node_;
  s.sign = sign;
  s.body = value.node();
  s.where = where;
  program_->note(std::move(s));
}

Var view(const Expr& value) { return {value.node(), nullptr}; }

Expr clone(const Expr& value) { return Expr(make_node(ast::Kind::call, "clone", {value.node()})); }
Expr zeros(DType type, const std::vector<Expr>& extents) {
  std::vector<NodePtr> args = nodes_of(extents);
  args.insert(args.begin(), absent());
  return Expr(make_node(ast::Kind::filled, std::string(name_of(type)), std::move(args)));
}
Expr full(const Expr& value, DType type, const std::vector<Expr>& extents) {
  std::vector<NodePtr> args = nodes_of(extents);
  args.insert(args.begin(), value.node());
  return Expr(make_node(ast::Kind::filled, std::string(name_of(type)), std::move(args)));
}
Expr concat(const Expr& axis, const std::vector<Expr>& parts) {
  std::vector<NodePtr> args = nodes_of(parts);
  args.insert(args.begin(), axis.node());
  return Expr(make_node(ast::Kind::call, "concat", std::move(args)));
}
Expr flip(const Expr& axis, const Expr& value) { return Expr(make_node(ast::Kind::call, "flip", {axis.node(), value.node()})); }
Expr roll(const Expr& axis, const Expr& by, const Expr& value) {
  return Expr(make_node(ast::Kind::call, "roll", {axis.node(), by.node(), value.node()}));
}

Prog::Prog(const std::string& name, Where where) : state_(std::make_shared<ProgState>()) {
  detail::check_name("a prog", name);
  if (ast::is_function_name(name) || ast::is_reduction_name(name)) throw Error(name + " is built in; give the prog another name");
  state_->name = name;
  state_->called = std::make_shared<const std::string>(name);
  state_->where = where;
}
const std::string& Prog::name() const { return state_->name; }

Var Prog::parameter(const std::string& name, DType type, const std::vector<Expr>& extents, bool constant, bool inout) {
  detail::check_name("a parameter", name);
  state_->parameters.push_back({name, type, nodes_of(extents), constant, inout});
  return {name_node(name, *state_), state_};
}
Var Prog::input(const std::string& name, DType type, const std::vector<Expr>& extents) {
  return parameter(name, type, extents, false, false);
}
Var Prog::constant(const std::string& name, DType type, const std::vector<Expr>& extents) {
  return parameter(name, type, extents, true, false);
}
Var Prog::inout(const std::string& name, DType type, const std::vector<Expr>& extents) {
  return parameter(name, type, extents, false, true);
}

void Prog::check_own(const Var& name, const Where& where) const {
  if (name.node_->program && name.node_->program != state_->called)
    throw Error(detail::prefix(where) + name.node_->text + " is a variable of prog " + *name.node_->program + ", and not of prog " +
                state_->name);
}

void Prog::output(const Var& name) {
  check_own(name, state_->where);
  if (name.node_->kind != ast::Kind::name) throw Error("an output of prog " + state_->name + " is a name, and this is a view of one");
  state_->outputs.push_back(name.node_->text);
}

Var Prog::local(const std::string& name) {
  detail::check_name("a variable", name);
  return {name_node(name, *state_), state_};
}

Var Prog::var(const std::string& name, const Expr& value, Where where) {
  Var made = local(name);
  Noted s;
  s.kind = ast::Statement::Kind::variable;
  s.targets = {name};
  s.body = value.node();
  s.where = where;
  state_->note(std::move(s));
  return made;
}

void Prog::assign(const std::vector<Var>& names, const Call& call, Where where) {
  Noted s;
  s.kind = ast::Statement::Kind::call;
  s.where = where;
  for (const Var& name : names) {
    check_own(name, where);
    if (name.node_->kind != ast::Kind::name) throw Error("results of a call are assigned to names, and one of these is a view");
    s.targets.push_back(name.node_->text);
  }
  s.body = static_cast<Expr>(call).node();
  state_->note(std::move(s));
}

void Prog::For(const Axis& variable, const Expr& begin, const Expr& end, const Body& body, Where where) {
  Noted s;
  s.where = where;
  s.kind = ast::Statement::Kind::loop;
  s.targets = {static_cast<Expr>(variable).node()->text};
  s.first = begin.node();
  s.last = end.node();
  s.statements = noted(*state_, body, where);
  state_->note(std::move(s));
}

void Prog::While(const Expr& condition, const Expr& most, const Body& body, Where where) {
  Noted s;
  s.where = where;
  s.kind = ast::Statement::Kind::repeat;
  s.body = condition.node();
  s.last = most.node();
  s.statements = noted(*state_, body, where);
  state_->note(std::move(s));
}

void Prog::If(const Expr& condition, const Body& then, const Body& otherwise, Where where) {
  Noted s;
  s.where = where;
  s.kind = ast::Statement::Kind::branch;
  s.body = condition.node();
  s.statements = noted(*state_, then, where);
  s.has_otherwise = otherwise != nullptr;
  s.otherwise = noted(*state_, otherwise, where);
  state_->note(std::move(s));
}

std::shared_ptr<ast::File> Prog::tree() const { return ProgTree(*state_).run(); }
std::string Prog::text() const { return ast::print(*tree()); }

Program Prog::build() const {
  if (state_->outputs.empty() && std::ranges::none_of(state_->parameters, [](const auto& p) { return p.inout; }))
    throw Error(detail::prefix(state_->where) + "prog " + state_->name + " has no output yet; name it with output(…)");
  ProgTree tree(*state_);
  return read_back(ast::print(*tree.run()), state_->name, tree.places());
}

Call call(const Prog& program, const std::vector<Expr>& arguments) {
  auto state = std::make_shared<detail::CallState>();
  state->callee = program.tree();
  state->name = program.name();
  state->arguments = nodes_of(arguments);
  return Call(state);
}

}  // namespace xhat::dsl
