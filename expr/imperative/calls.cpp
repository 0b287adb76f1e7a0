// Calls of ops in whole-tensor expressions: each is a definition before the statement that it stands in.
#include <fmt/format.h>

#include <algorithm>

#include "expr/imperative/expression.h"

namespace xhat::imperative {

using ast::Kind;
using ast::Ref;

void Expression::run_calls(Ref ref) {
  std::vector<Ref> below;
  collect_below(c_.file, ref, below);
  std::set<Ref> inside;  // of reductions
  for (Ref r : below)
    if (node(r).kind == Kind::reduce || node(r).kind == Kind::let) {
      std::vector<Ref> parts;
      collect_below(c_.file, r, parts);
      inside.insert(parts.begin(), parts.end());
    }
  for (Ref r : below)
    if (is_op(node(r)) && !inside.contains(r) && !calls_.contains(r)) calls_[r] = call(r, 1)[0];
}

std::vector<TensorId> Expression::call(Ref ref, size_t results) {
  const ast::Node& n = node(ref);
  auto it = c_.scope.ops.find(n.text);
  if (it == c_.scope.ops.end()) {
    std::vector<std::string> names;
    for (const auto& [name, program] : c_.scope.ops) names.push_back(name);
    throw Error(fmt::format("there is no op {} in this file{}", n.text, did_you_mean(n.text, names)), n.pos);
  }
  const std::shared_ptr<const Program>& callee = it->second;
  if (callee->steps)
    throw Error(fmt::format("not yet: {} has loops or branches that stay, and is called; only programs that become pure can be", n.text),
                n.pos);
  if (n.args.size() != callee->inputs.size())
    throw Error(fmt::format("op {} takes {} arguments, not {}", n.text, callee->inputs.size(), n.args.size()), n.pos);
  if (results != callee->outputs.size())
    throw Error(fmt::format("op {} has {} output{}, and {} stand{} on the left", n.text, callee->outputs.size(),
                            callee->outputs.size() == 1 ? "" : "s", results, results == 1 ? "s" : ""),
                n.pos);
  std::vector<TensorId> arguments;
  for (size_t i = 0; i < n.args.size(); ++i) {
    run_calls(n.args[i]);
    const Tensor parameter = callee->tensors[callee->inputs[i]];
    arguments.push_back(tensor(n.args[i], parameter.type, fmt::format("{}_arg{}", n.text, i + 1)));
  }
  std::vector<ast::Name> targets;
  for (size_t i = 0; i < results; ++i) targets.push_back({n.text + "_result", n.pos});
  Definition d = call_definition(c_.scope, callee, std::move(arguments), n, targets);
  std::vector<TensorId> made = d.targets;
  c_.items->emplace_back().is = std::move(d);
  return made;
}

}  // namespace xhat::imperative
