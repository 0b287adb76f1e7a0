// One op: parameters and dims, then its statements in the order of their dependence, then the backward block and the
// custom gradient, which see all of it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>

#include "expr/index/size_limits.h"
#include "expr/text/elaborate_scope.h"
#include "expr/text/errors.h"

namespace xhat {

namespace {

struct Signature {
  DType type;
  std::vector<Id> shape;
};

class OpBuilder {
 public:
  OpBuilder(const ast::File& file, const std::shared_ptr<Arena>& arena, const std::map<std::string, std::shared_ptr<const Program>>& ops)
      : file_(file), s_{file, *arena, program_, ops} {
    program_.arena = arena;
    program_.file = file.name;
    program_.text = file.text;
  }

  // skip: statements that are known to be wrong. With any, it looks only at those that do not read what these define, and gives no program.
  Program op(const OpAst& op, const std::set<size_t>& skip = {});
  // The statement of the op that was looked at last.
  std::optional<size_t> statement() const { return statement_; }
  // `grad f(…)` of an op that stands.
  Program gradient(const ast::Op& grad, const Program& op);

  // Of an op built by the C++ handles nothing has a place in a text: what is being elaborated is what its author finds a mistake by.
  Error named(const Error& e) const {
    if (e.pos().known()) return e;
    return Error(fmt::format("op {}{}: {}", program_.name, at_.empty() ? "" : ", " + at_, e.message()));
  }

 private:
  struct Product {  // an extent of a parameter
    Id extent;
    std::string parameter;
    Pos pos;
  };

  void parameters(const ast::Block& block);
  void check_products() const;
  void check_reach(Id extent, const std::string& name, Pos pos) const;
  void declare(const ast::Block& block);
  void dim_statements(const ast::Block& block);
  void dims_of_ranges(const ast::Block& block);
  void statements(const ast::Block& block, Region& into, const std::set<size_t>& skip = {});
  void define(const ast::Statement& s, Region& into);
  std::vector<size_t> order(const ast::Block& block) const;
  std::vector<TensorId> outputs(const ast::Block& block, const char* what) const;
  void backward(const ast::Block& block);
  void parameter_like(const ast::Parameter& p, const Tensor& like, Role role);
  std::vector<TensorId> float_outputs(const Program& p) const;

  const ast::File& file_;
  Program program_;
  OpScope s_;
  std::vector<Product> products_;
  std::set<std::string> in_ranges_;  // dims
  std::string at_;                   // what is being elaborated: "definition of y"
  std::optional<size_t> statement_;  // of the op's own block
};

void OpBuilder::parameters(const ast::Block& block) {
  for (const ast::Parameter& p : block.parameters) s_.declare_tensor(p.name, p.pos);
  for (const ast::Parameter& p : block.parameters) {
    at_ = "parameter " + p.name;
    std::vector<Id> shape;
    for (ast::Ref extent : p.extents) {
      Id id = elaborate_extent(s_, extent, true, "an extent");
      Pos pos = file_.nodes[extent].pos;
      if (!is_affine(s_.arena, id)) products_.push_back({id, p.name, pos});
      check_reach(id, p.name, pos);
      s_.require_extent(id, fmt::format("dimension {} of {}", shape.size(), p.name), pos);
      shape.push_back(id);
    }
    TensorId t = s_.add_tensor(p.name, p.type, std::move(shape), Role::input, p.pos);
    program_.tensors[t].constant = p.constant;
    program_.inputs.push_back(t);
  }
  at_.clear();
}

// A tensor that is as large whatever its dims are, if they are not 0, is refused where it is declared.
void OpBuilder::check_reach(Id extent, const std::string& name, Pos pos) const {
  const auto form = linear_form(s_.arena, extent);
  const Node& n = s_.arena[extent];
  const bool constant = n.op == Op::constant;
  if (constant ? n.integer <= kMaxElements : !form || std::abs(form->factor) <= kMaxElements) return;
  throw Error(fmt::format("extent {} of {} is more than 2^31-1 elements{}, which kernels do not take", text_of(s_, extent), name,
                          constant ? "" : " for any " + s_.arena.name(form->dim) + " but 0"),
              pos);
}

// A parameter's extent that is not affine is checked where it stands, but says nothing about its dims: they must be known
// from elsewhere, by another parameter or, as a written range has them, from outside.
void OpBuilder::check_products() const {
  std::set<Id> known;
  for (TensorId t : program_.inputs)
    for (Id extent : program_.tensors[t].shape)
      if (auto form = linear_form(s_.arena, extent)) known.insert(form->dim);
  for (const Product& product : products_)
    for (Id x : reachable(s_.arena, product.extent)) {
      if (s_.arena[x].op != Op::dim || known.contains(x) || in_ranges_.contains(s_.arena.name(x))) continue;
      throw Error(fmt::format("extent {} of {} is not affine in the dims, and nothing else says what {} is; a parameter's extent "
                              "is an integer, a dim, a sum of multiples of them, divided by constants, or made of dims "
                              "that other parameters determine",
                              text_of(s_, product.extent), product.parameter, s_.arena.name(x)),
                  product.pos);
    }
}

void OpBuilder::declare(const ast::Block& block) {
  for (const ast::Statement& s : block.statements)
    for (const ast::Name& target : s.targets) {
      if (s.kind != ast::Statement::Kind::dim) {
        s_.declare_tensor(target.text, target.pos);
        continue;
      }
      if (s_.dims.contains(target.text))
        throw Error(fmt::format("dim {} stands already in a parameter or another definition; take a new name", target.text), target.pos);
      if (s_.declared.contains(target.text))
        throw Error(
            fmt::format("dim {} has the name of the tensor of {}; take a new name", target.text, place(s_.declared.at(target.text))),
            target.pos);
      s_.declare_dim(target.text, target.pos);
    }
}

// `dim OH = …`, in any order: each definition is then spelled in the dims that are given.
void OpBuilder::dim_statements(const ast::Block& block) {
  std::vector<std::pair<size_t, Id>> defined;
  for (const ast::Statement& s : block.statements) {
    if (s.kind != ast::Statement::Kind::dim) continue;
    at_ = "dim " + s.targets[0].text;
    Id dim = s_.dims.at(s.targets[0].text);
    Id definition = elaborate_extent(s_, s.body, true, "a dim");
    for (size_t i = 0; i < program_.dims.size(); ++i)
      if (program_.dims[i].dim == dim) {
        program_.dims[i].definition = definition;
        defined.push_back({i, definition});
      }
  }
  at_.clear();
  Replacements found;
  for (size_t round = 0; round <= defined.size(); ++round) {
    found.clear();
    bool stable = true;
    for (auto& [at, expression] : defined) found[program_.dims[at].dim] = expression;
    for (auto& [at, expression] : defined) {
      Id next = substitute(s_.arena, expression, found);
      stable &= next == expression;
      if (round == defined.size() && next != expression)
        throw Error(fmt::format("dim {} is defined by itself, directly or through other dims", s_.arena.name(program_.dims[at].dim)),
                    program_.dims[at].pos);
      expression = next;
    }
    if (stable) break;
  }
  for (auto& [at, expression] : defined) {
    expression = s_.expanded(expression);  // a gradient has the dims of its op already
    found[program_.dims[at].dim] = expression;
  }
  s_.dim_definitions.insert(found.begin(), found.end());
  for (auto& [at, expression] : defined)
    s_.require_extent(expression, "dim " + s_.arena.name(program_.dims[at].dim), program_.dims[at].pos);
}

// A name in a written range that is nothing else is a dim that comes from outside.
void OpBuilder::dims_of_ranges(const ast::Block& block) {
  std::set<std::string> axes;
  std::vector<ast::Ref> ranges, all;
  for (const ast::Statement& s : block.statements) {
    std::vector<ast::Ref> below;
    collect_below(file_, s.body, below);
    std::vector<const ast::Axis*> bound;
    for (const ast::Axis& axis : s.axes) bound.push_back(&axis);
    for (ast::Ref r : below) {
      if (file_.nodes[r].kind == ast::Kind::let) axes.insert(file_.nodes[r].text);
      for (const ast::Axis& axis : file_.nodes[r].axes) bound.push_back(&axis);
    }
    for (const ast::Axis* axis : bound) {
      axes.insert(axis->name);
      for (ast::Ref end : {axis->begin, axis->end})
        if (end != ast::kAbsent) collect_below(file_, end, ranges);
    }
  }
  for (ast::Ref r : ranges) {
    const ast::Node& n = file_.nodes[r];
    if (n.kind != ast::Kind::name || axes.contains(n.text) || s_.declared.contains(n.text)) continue;
    in_ranges_.insert(n.text);
    if (!s_.dims.contains(n.text)) s_.declare_dim(n.text, n.pos);
  }
}

// Statements (not dims), each after those it reads, else as written.
std::vector<size_t> OpBuilder::order(const ast::Block& block) const {
  size_t count = block.statements.size();
  std::map<std::string, size_t> definer;
  for (size_t i = 0; i < count; ++i)
    if (block.statements[i].kind != ast::Statement::Kind::dim)
      for (const ast::Name& target : block.statements[i].targets) definer[target.text] = i;
  std::vector<std::vector<std::pair<size_t, ast::Ref>>> needs(count);
  for (size_t i = 0; i < count; ++i) {
    if (block.statements[i].kind == ast::Statement::Kind::dim) continue;
    std::vector<ast::Ref> below;
    collect_below(file_, block.statements[i].body, below);
    std::set<size_t> seen;
    std::set<std::string> axes;  // a bare name of one of them is it, even where a definition has the same name, which is said later
    for (const ast::Axis& axis : block.statements[i].axes) axes.insert(axis.name);
    for (ast::Ref r : below)
      for (const ast::Axis& axis : file_.nodes[r].axes) axes.insert(axis.name);
    for (ast::Ref r : below) {
      const ast::Node& n = file_.nodes[r];
      if (n.kind != ast::Kind::read && (n.kind != ast::Kind::name || axes.contains(n.text))) continue;
      auto it = definer.find(n.text);
      if (it != definer.end() && seen.insert(it->second).second) needs[i].push_back({it->second, r});
    }
    std::ranges::sort(needs[i]);
  }
  enum class Mark : uint8_t { white, grey, black };
  std::vector<Mark> mark(count, Mark::white);
  std::vector<size_t> result;
  for (size_t start = 0; start < count; ++start) {
    if (mark[start] != Mark::white || block.statements[start].kind == ast::Statement::Kind::dim) continue;
    std::vector<std::pair<size_t, size_t>> stack = {{start, 0}};
    mark[start] = Mark::grey;
    while (!stack.empty()) {
      auto& [at, next] = stack.back();
      if (next == needs[at].size()) {
        mark[at] = Mark::black;
        result.push_back(at);
        stack.pop_back();
        continue;
      }
      auto [child, ref] = needs[at][next++];
      if (mark[child] == Mark::grey) {
        std::string names;
        bool inside = false;
        for (auto [i, unused] : stack) {
          inside |= i == child;
          if (inside) names += block.statements[i].targets[0].text + " -> ";
        }
        throw Error(
            fmt::format(
                "definitions form a cycle: {}{}; each reads the next. What depends on its own elements before it is a loop of a prog",
                names, block.statements[child].targets[0].text),
            file_.nodes[ref].pos);
      }
      if (mark[child] == Mark::black) continue;
      mark[child] = Mark::grey;
      stack.push_back({child, 0});
    }
  }
  return result;
}

void OpBuilder::define(const ast::Statement& s, Region& into) {
  at_ = "definition of " + s.targets[0].text;
  bool call = s.kind == ast::Statement::Kind::call;
  const ast::Node& top = file_.nodes[s.body];
  if (call || (s.axes.empty() && top.kind == ast::Kind::call && s_.ops.contains(top.text))) {
    elaborate_call(s_, s, into);
    return;
  }
  BodyRequest request;
  request.axes = &s.axes;
  request.body = s.body;
  request.target = s.targets[0].text;
  BodyResult body = elaborate_body(s_, request);
  check_bounds(s_, body);
  std::vector<Id> shape;
  for (const AxisRange& r : body.axes) shape.push_back(r.end);
  TensorId t = s_.add_tensor(s.targets[0].text, s_.arena[body.body].type, std::move(shape), Role::defined, s.pos);
  Definition d;
  d.targets = {t};
  d.axes = std::move(body.axes);
  d.body = body.body;
  d.pos = s.pos;
  into.definitions.push_back(std::move(d));
}

void OpBuilder::statements(const ast::Block& block, Region& into, const std::set<size_t>& skip) {
  std::set<std::string> unknown;
  for (size_t i : order(block)) {
    const ast::Statement& s = block.statements[i];
    std::vector<ast::Ref> below;
    if (!unknown.empty()) collect_below(file_, s.body, below);
    const bool reads = std::ranges::any_of(below, [&](ast::Ref r) { return unknown.contains(file_.nodes[r].text); });
    if (&into == &program_.forward) statement_ = i;
    if (!reads && !skip.contains(i))
      define(s, into);
    else
      for (const ast::Name& target : s.targets) unknown.insert(target.text);
  }
  statement_.reset();
  at_.clear();
}

std::vector<TensorId> OpBuilder::outputs(const ast::Block& block, const char* what) const {
  std::vector<TensorId> found;
  std::vector<std::string> known;
  for (const auto& [name, id] : s_.tensors) known.push_back(name);
  std::ranges::sort(known);
  for (const ast::Name& name : block.outputs) {
    auto it = s_.tensors.find(name.text);
    if (it == s_.tensors.end())
      throw Error(fmt::format("{} {} is not defined in the block{}", what, name.text, did_you_mean(name.text, known)), name.pos);
    if (std::ranges::count(found, it->second)) throw Error(fmt::format("{} {} is listed twice", what, name.text), name.pos);
    found.push_back(it->second);
  }
  return found;
}

std::vector<TensorId> OpBuilder::float_outputs(const Program& p) const {
  std::vector<TensorId> found;
  for (TensorId t : p.outputs)
    if (is_float(p.tensors[t].type)) found.push_back(t);
  return found;
}

// A parameter of a backward block or a custom gradient: its type follows from the op, and is checked where written.
void OpBuilder::parameter_like(const ast::Parameter& p, const Tensor& like, Role role) {
  s_.declare_tensor(p.name, p.pos);
  std::vector<Id> shape = like.shape;
  if (p.typed) {
    if (p.type != like.type)
      throw Error(fmt::format("{} is {} here, but {}, which it belongs to, is {}", p.name, name_of(p.type), like.name, name_of(like.type)),
                  p.pos);
    bool same = p.extents.size() == like.shape.size();
    for (size_t i = 0; same && i < shape.size(); ++i) {
      shape[i] = elaborate_extent(s_, p.extents[i], false, "an extent");
      same = s_.same_extent(shape[i], like.shape[i]);
    }
    if (!same) throw Error(fmt::format("{} has another shape than {}, which it belongs to", p.name, like.name), p.pos);
    shape = like.shape;
  }
  DType type = like.type;
  bool constant = role == Role::input && like.constant;
  TensorId t = s_.add_tensor(p.name, type, std::move(shape), role, p.pos);
  program_.tensors[t].constant = constant;
}

void OpBuilder::backward(const ast::Block& block) {
  std::vector<TensorId> needed = float_outputs(program_);
  if (block.parameters.size() != needed.size())
    throw Error(fmt::format("the backward block takes {} cotangents, and op {} has {} float outputs; list one for each, in "
                            "order",
                            block.parameters.size(), program_.name, needed.size()),
                block.pos);
  for (size_t i = 0; i < needed.size(); ++i) {
    Tensor like = program_.tensors[needed[i]];
    parameter_like(block.parameters[i], like, Role::cotangent);
    program_.cotangents.push_back(s_.tensors.at(block.parameters[i].name));
  }
  declare(block);
  dims_of_ranges(block);
  statements(block, program_.backward);
  program_.gradients = outputs(block, "gradient");
  for (size_t i = 0; i < program_.gradients.size(); ++i) {
    const std::string& name = block.outputs[i].text;
    auto of = [&](const std::string& gradient) {
      return std::ranges::find_if(program_.inputs, [&](TensorId t) { return "grad_" + program_.tensors[t].name == gradient; });
    };
    auto input = of(name);
    // grad_x_1: a second derivative, where grad_x is an output already.
    const size_t end = name.find_last_not_of("0123456789");
    if (input == program_.inputs.end() && end + 1 < name.size() && end > 0 && name[end] == '_') input = of(name.substr(0, end));
    if (input == program_.inputs.end())
      throw Error(fmt::format("gradient {} belongs to no input; it is called grad_<input>", name), block.outputs[i].pos);
    program_.gradient_of.push_back(*input);
  }
}

Program OpBuilder::op(const OpAst& op, const std::set<size_t>& skip) {
  const ast::Block& block = op.op->body;
  program_.name = op.op->name;
  parameters(block);
  declare(block);
  dim_statements(block);
  dims_of_ranges(block);
  check_products();
  statements(block, program_.forward, skip);
  if (!skip.empty()) return {};
  program_.outputs = outputs(block, "output");
  if (op.gradient) {
    OpBuilder stated(file_, program_.arena, s_.ops);
    try {
      program_.custom_gradient = std::make_shared<const Program>(stated.gradient(*op.gradient, program_));
    } catch (const Error& e) {
      at_ = "its gradient";
      throw e.pos().known() ? e : Error(stated.at_.empty() ? e.message() : stated.at_ + ": " + e.message());
    }
  }
  if (op.op->backward) backward(*op.op->backward);
  return std::move(program_);
}

Program OpBuilder::gradient(const ast::Op& grad, const Program& op) {
  program_.name = grad.name;
  program_.dims = op.dims;
  for (const Dim& d : op.dims) s_.dims[s_.arena.name(d.dim)] = d.dim;
  for (const Dim& d : op.dims)
    if (d.definition != kNone) s_.dim_definitions[d.dim] = d.definition;
  for (size_t i = 0; i < op.dims.size(); ++i)
    for (auto& [dim, definition] : s_.dim_definitions) definition = s_.expanded(definition);

  const std::vector<ast::Parameter>& given = grad.body.parameters;
  std::vector<TensorId> cotangents_of = float_outputs(op);
  std::string head = "its head lists the op's inputs, then outputs, then one cotangent for each float output";
  size_t at = 0;
  for (TensorId t : op.inputs) {
    if (at == given.size() || given[at].name != op.tensors[t].name)
      throw Error(fmt::format("grad {} lacks the input {} at place {}; {}", grad.name, op.tensors[t].name, at + 1, head),
                  at < given.size() ? given[at].pos : grad.pos);
    parameter_like(given[at++], op.tensors[t], Role::input);
  }
  for (TensorId t : op.outputs)
    if (at < given.size() && given[at].name == op.tensors[t].name && !s_.declared.contains(given[at].name))
      parameter_like(given[at++], op.tensors[t], Role::input);
  if (given.size() - at != cotangents_of.size())
    throw Error(fmt::format("grad {} lists {} cotangents, and op {} has {} float outputs; {}", grad.name, given.size() - at, grad.name,
                            cotangents_of.size(), head),
                at < given.size() ? given[at].pos : grad.pos);
  for (TensorId t : cotangents_of) parameter_like(given[at++], op.tensors[t], Role::input);
  for (const ast::Parameter& p : given) program_.inputs.push_back(s_.tensors.at(p.name));

  declare(grad.body);
  dim_statements(grad.body);
  dims_of_ranges(grad.body);
  statements(grad.body, program_.forward);
  program_.outputs = outputs(grad.body, "gradient");
  std::vector<TensorId> wanted;
  for (TensorId t : op.inputs)
    if (is_float(op.tensors[t].type) && !op.tensors[t].constant) wanted.push_back(t);
  if (wanted.size() != program_.outputs.size())
    throw Error(fmt::format("grad {} delivers {} gradients, and op {} has {} float inputs that are not const; list one for "
                            "each, in order",
                            grad.name, program_.outputs.size(), grad.name, wanted.size()),
                grad.body.outputs[0].pos);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Tensor& input = op.tensors[wanted[i]];
    const Tensor& output = program_.tensors[program_.outputs[i]];
    bool same = input.type == output.type && input.shape.size() == output.shape.size();
    for (size_t d = 0; same && d < input.shape.size(); ++d) same = s_.same_extent(input.shape[d], output.shape[d]);
    if (!same)
      throw Error(fmt::format("{} is the gradient of {}, and has another type or shape", output.name, input.name),
                  grad.body.outputs[i].pos);
  }
  return std::move(program_);
}

}  // namespace

Program elaborate_op(const ast::File& file, const std::shared_ptr<Arena>& arena, const OpAst& op,
                     const std::map<std::string, std::shared_ptr<const Program>>& ops) {
  std::vector<Error> wrong;
  std::set<size_t> statements;  // that are
  do {
    OpBuilder builder(file, arena, ops);
    try {
      Program made = builder.op(op, statements);
      if (wrong.empty()) return made;
      break;
    } catch (const Error& e) {
      wrong.push_back(builder.named(e));
      if (!builder.statement() || !e.pos().known()) break;
      statements.insert(*builder.statement());
    }
  } while (wrong.size() < kMaxErrors);
  throw_all(std::move(wrong));
}

}  // namespace xhat
