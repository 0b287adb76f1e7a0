// Calls of other ops, and the names and dims of an op.
//
// A call stays a call (ad expands it, so that custom gradients survive). An argument that is not a plain tensor becomes
// a definition of its own, `softmax_arg1[i0,i1] = …`, so that a call's arguments are always tensors.
#include <fmt/format.h>

#include <algorithm>

#include "expr/core/syntax.h"
#include "expr/index/affine.h"
#include "expr/index/dims.h"
#include "expr/index/expand_calls.h"
#include "expr/text/elaborate_scope.h"

namespace xhat {

std::string names_of(const Program& p, std::span<const TensorId> tensors) {
  std::string names;
  for (TensorId t : tensors) names += (names.empty() ? "" : ", ") + p.tensors[t].name;
  return names;
}

const std::shared_ptr<const Program>& callee_of(const OpScope& s, const ast::Node& n) {
  auto it = s.ops.find(n.text);
  if (n.kind != ast::Kind::call || it == s.ops.end()) {
    std::vector<std::string> known;
    for (const auto& [name, program] : s.ops) known.push_back(name);
    const std::string hint = did_you_mean(ast::Stranger::function, n.text, known);
    throw Error(fmt::format("there is no op {} in this file{}", n.text,
                            hint.empty() ? "; what has no op is written element by element, as in y[i,j] = ..." : hint),
                n.pos);
  }
  const Program& callee = *it->second;
  if (n.args.size() != callee.inputs.size())
    throw Error(fmt::format("op {} takes {} arguments, not {}: {}", n.text, callee.inputs.size(), n.args.size(), names_of(callee, callee.inputs)),
                n.pos);
  return it->second;
}

bool is_function_of_numbers(const Program& p) {
  auto is_number = [&](TensorId t) { return p.tensors[t].shape.empty(); };
  return p.outputs.size() == 1 && p.dims.empty() && !p.steps && !states_gradient(p) && std::ranges::all_of(p.inputs, is_number) &&
         std::ranges::all_of(p.forward.definitions, [&](const Definition& d) {
           return d.targets.size() == 1 && is_number(d.target()) && (!d.is_call() || is_function_of_numbers(*d.callee));
         });
}

Value number_of_op(OpScope& s, const ast::Node& n, const std::vector<Value>& args, std::span<const Id> avoid) {
  Arena& a = s.arena;
  const Program p = ordered(expand_calls(*callee_of(s, n)));
  Replacements values;
  for (size_t i = 0; i < args.size(); ++i) {
    const Tensor& input = p.tensors[p.inputs[i]];
    const Pos pos = s.file.nodes[n.args[i]].pos;
    const DType given = args[i].untyped() ? input.type : a[args[i].typed].type;
    if (given != input.type && promote(given, input.type) != input.type)
      throw Error(fmt::format("{} takes {} for {}, and this is {}; cast it, as in {}(…)", n.text, name_of(input.type), input.name,
                              name_of(given), name_of(input.type)),
                  pos);
    values[a.read(p.inputs[i], input.type, std::vector<Id>{})] = materialise(a, args[i], input.type, pos);
  }
  for (const Definition& d : p.forward.definitions)
    values[a.read(d.target(), p.tensors[d.target()].type, std::vector<Id>{})] = substitute(a, d.body, values, avoid);
  return typed_value(values.at(a.read(p.outputs[0], p.tensors[p.outputs[0]].type, std::vector<Id>{})));
}

Id OpScope::declare_dim(const std::string& name, Pos pos) {
  auto [it, fresh] = dims.emplace(name, kNone);
  if (fresh) {
    it->second = arena.dim(name);
    program.dims.push_back({it->second, kNone, pos});
  }
  return it->second;
}

void OpScope::declare_tensor(const std::string& name, Pos pos) {
  if (dims.contains(name)) throw Error(fmt::format("{} is a dim already; take a new name", name), pos);
  auto [it, fresh] = declared.emplace(name, pos);
  if (!fresh) throw Error(fmt::format("{} is defined already, at {}; a name is defined once", name, place(it->second)), pos);
}

TensorId OpScope::add_tensor(const std::string& name, DType type, std::vector<Id> shape, Role role, Pos pos) {
  auto id = static_cast<TensorId>(program.tensors.size());
  Tensor t;
  t.name = name;
  t.type = type;
  t.shape = std::move(shape);
  t.role = role;
  t.pos = pos;
  program.tensors.push_back(std::move(t));
  tensors[name] = id;
  return id;
}

std::string OpScope::unused_name(const std::string& wanted) const {
  std::string name = wanted;
  for (int i = 1; declared.contains(name) || dims.contains(name); ++i) name = fmt::format("{}_{}", wanted, i);
  return name;
}

bool is_affine(const Arena& a, Id extent) {
  for (Id id : reachable(a, extent)) {
    const Node& n = a[id];
    auto constant = [&](size_t i) { return a[n.arg(i)].op == Op::constant; };
    bool fine = n.op == Op::constant || n.op == Op::dim || n.op == Op::add || n.op == Op::sub || n.op == Op::neg ||
                (n.op == Op::mul && (constant(0) || constant(1))) ||
                ((n.op == Op::div || n.op == Op::mod) && constant(1) && a[n.arg(1)].integer > 0);
    if (!fine) return false;
  }
  return true;
}

namespace {

std::string extents_text(const OpScope& s, const std::vector<Id>& shape) {
  std::string text;
  for (Id extent : shape) text += (text.empty() ? "" : ",") + text_of(s, extent);
  return "[" + text + "]";
}

class CallBuilder {
 public:
  CallBuilder(OpScope& scope, const ast::Statement& statement, Region& into)
      : s_(scope), a_(scope.arena), statement_(statement), into_(into) {}

  void run() {
    // Calls inside the arguments come first; a call's parts have smaller numbers than the call.
    std::vector<ast::Ref> below;
    collect_below(s_.file, statement_.body, below);
    for (ast::Ref r : below) {
      const ast::Node& n = s_.file.nodes[r];
      if (n.kind != ast::Kind::call || !s_.ops.contains(n.text) || r == statement_.body) continue;
      if (is_function_of_numbers(*s_.ops.at(n.text))) continue;
      std::string name = s_.unused_name(n.text + "_result");
      s_.declare_tensor(name, n.pos);
      call(r, {{name, n.pos}});
      calls_[r] = s_.tensors.at(name);
    }
    const ast::Node& whole = s_.file.nodes[statement_.body];
    if (statement_.targets.size() == 1 && is_function_of_numbers(*callee_of(s_, whole)))
      if (std::vector<AxisRange> axes = broadcast(statement_.body); !axes.empty()) return each_element(std::move(axes));
    call(statement_.body, statement_.targets);
  }

 private:
  // y = g(x), where g is of numbers and x has dimensions.
  void each_element(std::vector<AxisRange> axes) {
    BodyRequest request;
    request.body = statement_.body;
    request.whole = &axes;
    request.calls = &calls_;
    BodyResult body = elaborate_body(s_, request);
    check_bounds(s_, body);
    std::vector<Id> shape;
    for (const AxisRange& r : axes) shape.push_back(r.end);
    Definition d;
    d.targets = {s_.add_tensor(statement_.targets[0].text, a_[body.body].type, std::move(shape), Role::defined, statement_.pos)};
    d.axes = std::move(axes);
    d.body = body.body;
    d.pos = statement_.pos;
    into_.definitions.push_back(std::move(d));
  }

  void call(ast::Ref ref, const std::vector<ast::Name>& targets) {
    const ast::Node& n = s_.file.nodes[ref];
    const std::shared_ptr<const Program>& callee = callee_of(s_, n);
    if (targets.size() != callee->outputs.size())
      throw Error(fmt::format("op {} has {} output{}, and {} name{} on the left; they are {}", n.text, callee->outputs.size(),
                              callee->outputs.size() == 1 ? "" : "s", targets.size(), targets.size() == 1 ? " stands" : "s stand",
                              names_of(*callee, callee->outputs)),
                  targets[0].pos);
    std::vector<TensorId> arguments;
    for (size_t i = 0; i < n.args.size(); ++i)
      arguments.push_back(argument(n.args[i], callee->tensors[callee->inputs[i]], fmt::format("{}_arg{}", n.text, i + 1)));
    add(callee, std::move(arguments), n, targets);
  }

 public:
  void add(const std::shared_ptr<const Program>& callee, std::vector<TensorId> arguments, const ast::Node& n,
           const std::vector<ast::Name>& targets) {
    Definition d;
    d.callee = callee;
    d.pos = statement_.pos;
    d.arguments = std::move(arguments);
    std::vector<std::vector<Id>> shapes;
    for (TensorId t : d.arguments) shapes.push_back(s_.program.tensors[t].shape);
    const Replacements dims = dims_of_call(s_, *callee, shapes, n);
    for (const Precondition& p : callee->preconditions) inherit_precondition(s_, *callee, p, substitute(a_, p.condition, dims), n.pos);
    for (size_t i = 0; i < targets.size(); ++i) {
      const Tensor& out = callee->tensors[callee->outputs[i]];
      d.targets.push_back(s_.add_tensor(targets[i].text, out.type, substituted(out.shape, dims), Role::defined, targets[i].pos));
    }
    into_.definitions.push_back(std::move(d));
  }

 private:
  std::vector<Id> substituted(const std::vector<Id>& shape, const Replacements& dims) {
    std::vector<Id> result;
    for (Id extent : shape) result.push_back(substitute(a_, extent, dims));
    return result;
  }

  std::optional<TensorId> plain_tensor(ast::Ref ref) const {
    const ast::Node& n = s_.file.nodes[ref];
    if (auto it = calls_.find(ref); it != calls_.end()) return it->second;
    if (n.kind != ast::Kind::name) return std::nullopt;
    auto it = s_.tensors.find(n.text);
    return it == s_.tensors.end() ? std::nullopt : std::optional(it->second);
  }

  TensorId argument(ast::Ref ref, const Tensor& parameter, const std::string& helper) {
    std::optional<TensorId> plain = plain_tensor(ref);
    if (plain && s_.program.tensors[*plain].type == parameter.type) return *plain;
    std::vector<AxisRange> axes = broadcast(ref);
    BodyRequest request;
    request.body = ref;
    request.whole = &axes;
    request.calls = &calls_;
    request.untyped_as = parameter.type;
    BodyResult body = elaborate_body(s_, request);
    DType given = a_[body.body].type;
    Pos pos = s_.file.nodes[ref].pos;
    if (given != parameter.type && promote(given, parameter.type) != parameter.type)
      throw Error(fmt::format("{} takes {} for {}, and this is {}; cast it, as in {}(…)", helper.substr(0, helper.rfind('_')),
                              name_of(parameter.type), parameter.name, name_of(given), name_of(parameter.type)),
                  pos);
    body.body = a_.to(parameter.type, body.body);
    check_bounds(s_, body);
    std::string name = s_.unused_name(helper);
    s_.declare_tensor(name, pos);
    std::vector<Id> shape;
    for (const AxisRange& r : axes) shape.push_back(r.end);
    Definition d;
    d.targets = {s_.add_tensor(name, parameter.type, std::move(shape), Role::defined, pos)};
    d.axes = axes;
    d.body = body.body;
    d.pos = pos;
    into_.definitions.push_back(std::move(d));
    return into_.definitions.back().target();
  }

  // The axes of a whole-tensor expression: shapes are aligned at their last dimensions; an extent of 1 stretches.
  std::vector<AxisRange> broadcast(ast::Ref root) {
    std::vector<ast::Ref> stack = {root}, leaves;
    while (!stack.empty()) {
      ast::Ref r = stack.back();
      stack.pop_back();
      if (plain_tensor(r))
        leaves.push_back(r);
      else if (s_.file.nodes[r].kind != ast::Kind::read && s_.file.nodes[r].kind != ast::Kind::reduce)
        for (ast::Ref x : s_.file.nodes[r].args) stack.push_back(x);
    }
    std::ranges::sort(leaves);
    std::vector<Id> shape;  // last dimension first
    for (ast::Ref r : leaves) {
      const std::vector<Id>& other = s_.program.tensors[*plain_tensor(r)].shape;
      for (size_t i = 0; i < other.size(); ++i) {
        Id extent = other[other.size() - 1 - i];
        if (i == shape.size())
          shape.push_back(extent);
        else if (is_constant(a_, shape[i], 1))
          shape[i] = extent;
        else if (!is_constant(a_, extent, 1) && !s_.same_extent(shape[i], extent))
          throw Error(fmt::format("shape {} does not broadcast with the others here: {} against {}, counted from the last "
                                  "dimension {}",
                                  extents_text(s_, other), text_of(s_, extent), text_of(s_, shape[i]), i + 1),
                      s_.file.nodes[r].pos);
      }
    }
    std::vector<AxisRange> axes;
    for (size_t i = 0; i < shape.size(); ++i)
      axes.push_back({a_.axis(s_.unused_name(fmt::format("i{}", i))), a_.integer(0), shape[shape.size() - 1 - i]});
    return axes;
  }

  OpScope& s_;
  Arena& a_;
  const ast::Statement& statement_;
  Region& into_;
  std::unordered_map<ast::Ref, TensorId> calls_;
};

Id solved(Arena& a, const LinearExtent& x, Id extent) {
  Id rest = extent;
  if (x.offset > 0) rest = a.sub(extent, a.integer(x.offset));
  if (x.offset < 0) rest = a.add(extent, a.integer(-x.offset));
  return x.factor == 1 ? rest : a.div(rest, a.integer(x.factor));
}

// `dim OH = …` of the callee, in our dims; definitions may use each other.
void define_dims(Arena& a, const Program& callee, Replacements& dims) {
  Replacements definitions;
  for (const Dim& d : callee.dims)
    if (d.definition != kNone) definitions[d.dim] = d.definition;
  for (size_t round = 0; round < definitions.size(); ++round)
    for (auto& [dim, definition] : definitions) definition = substitute(a, definition, definitions);
  Replacements given = dims;
  for (auto& [dim, definition] : definitions) dims[dim] = substitute(a, definition, given);
}

}  // namespace

Replacements dims_of_call(OpScope& s, const Program& callee, const std::vector<std::vector<Id>>& shapes, const ast::Node& call) {
  Arena& a = s.arena;
  Replacements dims;
  auto parameter = [&](size_t i) -> const Tensor& { return callee.tensors[callee.inputs[i]]; };
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (shapes[i].size() != parameter(i).shape.size())
      throw Error(fmt::format("op {} takes {} with {} dimension{}, and this has {}", call.text, parameter(i).name, parameter(i).shape.size(),
                              parameter(i).shape.size() == 1 ? "" : "s", shapes[i].size()),
                  s.file.nodes[call.args[i]].pos);
    for (size_t d = 0; d < shapes[i].size(); ++d)
      if (auto x = linear_form(a, parameter(i).shape[d]); x && !dims.contains(x->dim)) dims[x->dim] = solved(a, *x, shapes[i][d]);
  }
  for (const Dim& d : callee.dims)
    if (d.definition == kNone && !dims.contains(d.dim)) dims[d.dim] = s.declare_dim(a.name(d.dim), call.pos);
  define_dims(a, callee, dims);
  for (size_t i = 0; i < shapes.size(); ++i)
    for (size_t d = 0; d < shapes[i].size(); ++d) {
      const Id wanted = substitute(a, parameter(i).shape[d], dims);
      if (s.same_extent(wanted, shapes[i][d])) continue;
      throw Error(fmt::format("op {} takes {} with extent {} in dimension {}, which is {} here, and this has {}", call.text,
                              parameter(i).name, text_of(s, parameter(i).shape[d]), d, text_of(s, wanted), text_of(s, shapes[i][d])),
                  s.file.nodes[call.args[i]].pos);
    }
  return dims;
}

void inherit_precondition(OpScope& s, const Program& callee, const Precondition& p, Id condition, Pos pos) {
  Arena& a = s.arena;
  const Node n = a[condition];
  // Of the form value <= extent: 0 <= extent - value, asked like an extent.
  if (n.op == Op::le) {
    Id room = s.expanded(a.sub(n.arg(1), n.arg(0)));
    BoundsQuestion q{{}, {}, room, a.add(room, a.integer(1))};
    BoundsAnswer answer = prove_bounds(a, q);
    if (answer.verdict == BoundsAnswer::Verdict::proved) return;
    bool constant = std::ranges::none_of(reachable(a, room), [&](Id x) { return a[x].op == Op::dim; });
    if (constant) throw Error(fmt::format("op {} cannot run on these shapes: {}", callee.name, p.reason), pos);
  }
  s.require(condition, fmt::format("in op {}: {}", callee.name, p.reason), pos);
}

void elaborate_call(OpScope& scope, const ast::Statement& statement, Region& into) { CallBuilder(scope, statement, into).run(); }

Definition call_definition(OpScope& scope, const std::shared_ptr<const Program>& callee, std::vector<TensorId> arguments,
                           const ast::Node& call, const std::vector<ast::Name>& targets) {
  ast::Statement statement;
  statement.pos = call.pos;
  Region region;
  CallBuilder(scope, statement, region).add(callee, std::move(arguments), call, targets);
  return region.definitions.back();
}

}  // namespace xhat
