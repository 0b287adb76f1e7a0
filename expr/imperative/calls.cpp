// Calls of ops in whole-tensor expressions: each is a definition before the statement that it stands in.
#include <fmt/format.h>

#include <algorithm>

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
  for (Ref r : below)
    if (is_op(node(r)) && !calls_.contains(r) && stands_alone(r)) calls_[r] = call(r, 1)[0];
}

std::vector<TensorId> Expression::call(Ref ref, size_t results) {
  const ast::Node& n = node(ref);
  const std::shared_ptr<const Program>& callee = callee_of(c_.scope, n);
  if (results != callee->outputs.size())
    throw Error(fmt::format("op {} has {} output{}, and {} stand{} on the left; they are {}", n.text, callee->outputs.size(),
                            callee->outputs.size() == 1 ? "" : "s", results, results == 1 ? "s" : "", names_of(*callee, callee->outputs)),
                n.pos);
  std::vector<TensorId> arguments;
  for (size_t i = 0; i < n.args.size(); ++i) {
    run_calls(n.args[i]);
    const Tensor parameter = callee->tensors[callee->inputs[i]];
    if (const Shape given = shape(n.args[i]); std::ranges::any_of(given, [&](Id extent) { return c_.varies(extent); }))
      throw Error(fmt::format("not yet: {} is called with {}, whose shape {} depends on the iteration", n.text, text(n.args[i]),
                              shape_text(c_.scope, given)),
                  node(n.args[i]).pos);
    arguments.push_back(tensor(n.args[i], parameter.type, fmt::format("{}_arg{}", n.text, i + 1)));
  }
  std::vector<ast::Name> targets;
  for (size_t i = 0; i < results; ++i) targets.push_back({n.text + "_result", n.pos});
  Definition d = call_definition(c_.scope, callee, std::move(arguments), n, targets);
  std::vector<TensorId> made = d.targets;
  if (callee->steps) {
    for (Item& item : inline_steps(c_, *callee, d.arguments, made)) c_.items->push_back(std::move(item));
  } else {
    c_.items->emplace_back().is = std::move(d);
  }
  return made;
}

}  // namespace xhat::imperative
