// Calls of ops in whole-tensor expressions: each is a definition before the statement that it stands in.
#include <fmt/format.h>

#include <algorithm>

#include "expr/core/conditions.h"
#include "expr/imperative/expression.h"
#include "expr/imperative/inline_steps.h"

namespace xhat::imperative {

using ast::Kind;
using ast::Ref;

void Expression::run_calls(Ref ref) {
  std::vector<Ref> below;
  collect_below(c_.file, ref, below);
  // Names that a reduction or a let binds around a call; one that uses none of them can be defined before.
  std::unordered_map<Ref, std::set<std::string>> bound;
  for (Ref r : below) {
    const ast::Node& n = node(r);
    if (n.kind != Kind::reduce && n.kind != Kind::let) continue;
    std::vector<Ref> parts;
    collect_below(c_.file, r, parts);
    for (Ref part : parts) {
      if (n.kind == Kind::let) bound[part].insert(n.text);
      for (const ast::Axis& axis : n.axes) bound[part].insert(axis.name);
    }
  }
  auto stands_alone = [&](Ref call) {
    auto it = bound.find(call);
    if (it == bound.end()) return true;
    std::vector<Ref> parts;
    collect_below(c_.file, call, parts);
    return std::ranges::none_of(parts, [&](Ref part) { return it->second.contains(node(part).text); });
  };
  // In a branch of an expression, a call is made where the branch is taken, if positions decide that.
  std::unordered_map<Ref, std::vector<std::pair<Ref, size_t>>> branches;
  for (Ref r : below) {
    if (node(r).kind != Kind::choose || !is_of_positions(node(r).args[0])) continue;
    for (size_t k : {1, 2}) {
      std::vector<Ref> parts;
      collect_below(c_.file, node(r).args[k], parts);
      for (Ref part : parts)
        if (is_op(node(part))) branches[part].emplace_back(node(r).args[0], k);
    }
  }
  for (Ref r : below) {
    if (!is_op(node(r)) || calls_.contains(r) || !stands_alone(r)) continue;
    const size_t conditions = c_.state.conditions.size(), guards = c_.state.guards.size();
    for (const auto& [condition_ref, side] : branches[r]) {
      const Id holds = condition(condition_ref, "the condition of if");
      c_.state.conditions.push_back(side == 1 ? holds : negation(a_, holds));
      c_.state.guards.push_back(c_.state.conditions.back());
    }
    calls_[r] = call(r, 1)[0];
    c_.state.conditions.resize(conditions), c_.state.guards.resize(guards);
  }
}

// What the callee requires of its dims, of which some depend on the iteration.
void Expression::require_of_call(const ast::Node& call, const Program& callee, const Replacements& dims) {
  auto require = [&](Id room, const std::string& what, const char* of) {
    c_.require_inside(room, a_.add(room, a_.integer(1)), what, of, call.pos);
  };
  std::string here;
  for (const Dim& d : callee.dims)
    if (const auto it = dims.find(d.dim); it != dims.end() && c_.varies(it->second)) {
      here += fmt::format("{}{} = {}", here.empty() ? "" : ", ", a_.name(d.dim), text_of(c_.scope, it->second));
      require(it->second, fmt::format("{} of op {}, which is {} here,", a_.name(d.dim), callee.name, text_of(c_.scope, it->second)),
              "the numbers from 0 on");
    }
  for (const Precondition& p : callee.preconditions) {
    const Id condition = substitute(a_, p.condition, dims);
    const Node n = a_[condition];
    const std::string what = fmt::format("in op {}: {}, which for {}", callee.name, p.reason, here);
    if (!c_.varies(condition))
      inherit_precondition(c_.scope, callee, p, condition, call.pos);
    else if (n.op == Op::le)
      require(a_.sub(n.arg(1), n.arg(0)), what, "it");
    else if (!c_.implied(c_.loop_ranges(), c_.state.conditions, condition))
      throw Error(what + " may fall outside it; write what the op computes in the loop", call.pos);
  }
}

std::vector<Expression::Result> Expression::call(Ref ref, size_t results) {
  const ast::Node& n = node(ref);
  const std::shared_ptr<const Program>& callee = callee_of(c_.scope, n);
  if (results != callee->outputs.size())
    throw Error(fmt::format("op {} has {} output{}, and {} stand{} on the left; they are {}", n.text, callee->outputs.size(),
                            callee->outputs.size() == 1 ? "" : "s", results, results == 1 ? "s" : "", names_of(*callee, callee->outputs)),
                n.pos);
  std::vector<TensorId> arguments;
  std::vector<Shape> shapes;
  bool varies = false;
  for (size_t i = 0; i < n.args.size(); ++i) {
    run_calls(n.args[i]);
    const Tensor parameter = callee->tensors[callee->inputs[i]];
    shapes.push_back(shape(n.args[i]));
    varies = varies || std::ranges::any_of(shapes.back(), [&](Id extent) { return c_.varies(extent); });
    arguments.push_back(tensor(n.args[i], parameter.type, fmt::format("{}_arg{}", n.text, i + 1)));
  }
  std::vector<Result> made;
  Replacements dims;
  if (varies) {
    dims = dims_of_call(c_.scope, *callee, shapes, n);
    require_of_call(n, *callee, dims);
    for (TensorId t : callee->outputs) {
      const Tensor out = callee->tensors[t];
      Shape shape;
      for (Id extent : out.shape) shape.push_back(c_.tidy(substitute(a_, extent, dims)));
      made.push_back({c_.new_tensor(n.text + "_result", out.type, shape), shape});
      c_.program.tensors[made.back().tensor].pos = n.pos;
    }
  } else {
    std::vector<ast::Name> targets;
    for (size_t i = 0; i < results; ++i) targets.push_back({n.text + "_result", n.pos});
    Definition d = call_definition(c_.scope, callee, arguments, n, targets);
    for (TensorId t : d.targets) made.push_back({t, c_.program.tensors[t].shape});
    if (!callee->steps) {
      c_.items->emplace_back().is = std::move(d);
      return made;
    }
    dims = dims_of_call(c_.scope, *callee, shapes, n);
  }
  InlinedCall call{*callee, dims, {}, n.pos};
  for (size_t k = 0; k < arguments.size(); ++k) call.tensors[callee->inputs[k]] = {arguments[k], shapes[k]};
  for (size_t k = 0; k < results; ++k) call.tensors[callee->outputs[k]] = {made[k].tensor, made[k].shape};
  for (Item& item : inline_call(c_, std::move(call))) c_.items->push_back(std::move(item));
  return made;
}

}  // namespace xhat::imperative
