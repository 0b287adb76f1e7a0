#include "ad/common/opaque_ops.h"

#include <algorithm>
#include <set>

#include "expr/index/expand_calls.h"

namespace xhat {

std::map<std::string, std::string> opaque_nodes(const Program& op, const std::vector<std::string>& names) {
  std::map<std::string, std::string> node_of;
  if (names.empty()) return node_of;
  auto wanted = [&](const std::string& name) { return std::ranges::find(names, name) != names.end(); };
  std::vector<ExpandedCall> calls;
  const Program expanded = expand_calls(op, false, &calls);
  std::set<std::string> met;
  for (const ExpandedCall& c : calls) {  // outer ones first
    if (!wanted(c.callee)) continue;
    met.insert(c.callee);
    const std::string node = c.callee + " " + expanded.tensors[c.result].name;
    for (TensorId t : c.members) node_of.emplace(expanded.tensors[t].name, node);
  }
  for (const Definition& d : expanded.definitions()) {
    const std::string& name = expanded.tensors[d.target()].name;
    if (!wanted(name)) continue;
    met.insert(name);
    node_of.emplace(name, name);
  }
  for (const std::string& name : names)
    if (!met.contains(name)) throw Error("op " + op.name + " neither calls an op nor defines a tensor '" + name + "' that could be opaque");
  return node_of;
}

}  // namespace xhat
