#include "fusion/relay/relay_kernels.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "cse/normalize/auto_inliner.h"
#include "cse/normalize/lift_reductions.h"
#include "expr/core/uses.h"
#include "fusion/relations/relations.h"
#include "fusion/relay/post_dominators.h"
#include "fusion/relay/relay_text.h"

namespace xhat {

using namespace fusion;

namespace {

// The reason why the group of `root`, of kind `kind`, does not continue with the users of root.
std::string reason(const ForwardGraph& graph, const std::vector<PostDominator>& tree, size_t root, OpKind kind) {
  const std::string& name = graph.op(root).name;
  if (graph.nodes[root].external) return name + " is a result";
  if (!tree[root].parent) return "the ways from " + name + " do not meet";
  if (kind == OpKind::comm_reduce) return name + " is a reduction: nothing follows in its kernel";
  if (kind == OpKind::opaque) return name + " is opaque";
  return fmt::format("from {} to {} it is {}", name, graph.op(*tree[root].parent).name, name_of(tree[root].kind));
}

}  // namespace

Program with_written_ops(const Program& planned, const Program& written) {
  Program p = planned;
  p.forward = written.forward;
  for (const Definition& d : planned.forward.definitions)
    if (!written.forward.definition_of(d.target())) p.forward.definitions.push_back(d);
  p = lift_reductions(ordered(p));
  // Lifting the written definitions makes copies of reductions that planning has lifted already; equal ones become one.
  std::vector<TensorId> maps;
  for (const Definition& d : p.definitions())
    if (!is_reduction((*p.arena)[d.body].op)) maps.push_back(d.target());
  return inline_maps(p, maps);
}

namespace {

// The nodes that are kept, as far as this program has them. A reduction that was lifted out of a member m is called m_…, and belongs
// to it if nobody else reads it.
std::vector<DataflowNode> nodes_of(const Program& p, const OpaqueNodes& opaque) {
  const Uses uses(p);
  std::map<std::string, DataflowNode> nodes;
  for (const Definition& d : p.forward.definitions)
    if (auto it = opaque.find(p.tensors[d.target()].name); it != opaque.end()) {
      nodes[it->second].name = it->second;
      nodes[it->second].members.push_back(d.target());
    }
  std::vector<DataflowNode> found;
  for (auto& [name, node] : nodes) {
    auto is_member = [&](TensorId t) { return std::ranges::find(node.members, t) != node.members.end(); };
    auto is_part = [&](const Definition& d) {
      const bool named = std::ranges::any_of(
          node.members, [&](TensorId t) { return p.tensors[d.target()].name.starts_with(p.tensors[t].name + "_"); });
      if (!named || is_member(d.target()) || std::ranges::find(p.outputs, d.target()) != p.outputs.end()) return false;
      return std::ranges::all_of(uses.readers(d.target()), [&](const Definition* reader) { return is_member(reader->target()); });
    };
    for (const Definition& d : p.forward.definitions)
      if (!opaque.contains(p.tensors[d.target()].name) && is_part(d)) node.members.push_back(d.target());
    found.push_back(convex(p, std::move(node)));
  }
  return found;
}

// A node as a program of its own.
Program program_of(const Program& p, const DataflowNode& node) {
  Program part = p;
  part.forward.definitions.clear();
  part.inputs.clear();
  part.outputs.clear();
  auto is_member = [&](TensorId t) { return std::ranges::find(node.members, t) != node.members.end(); };
  const Uses uses(p);
  for (const Definition& d : p.forward.definitions) {
    if (!is_member(d.target())) continue;
    part.forward.definitions.push_back(d);
    for (TensorId t : tensors_read(*p.arena, d.body))
      if (!is_member(t) && std::ranges::find(part.inputs, t) == part.inputs.end()) part.inputs.push_back(t);
    if (std::ranges::find(p.outputs, d.target()) != p.outputs.end() ||
        !std::ranges::all_of(uses.readers(d.target()), is_member, [](const Definition* reader) { return reader->target(); }))
      part.outputs.push_back(d.target());
  }
  return part;
}

class Grouper {
 public:
  explicit Grouper(const Program& direction) : direction_(direction) {}

  RelayKernels run(const RelayOptions& options, const OpaqueNodes& opaque) {
    kernels_.dump = to_text(options) + "\n";
    group(direction_, options, opaque);
    kernels_.program = inline_maps(direction_, results_);
    return std::move(kernels_);
  }

 private:
  void group(const Program& p, const RelayOptions& options, const OpaqueNodes& opaque) {
    const std::vector<DataflowNode> nodes = nodes_of(p, opaque);
    const DataflowGraph ops = dataflow(p, nodes);
    const ForwardGraph graph = forward_graph(ops);
    const std::vector<PostDominator> tree = post_dominators(graph);
    const std::vector<RelayGroup> found = relay_groups(graph, options);
    kernels_.dump += table_text(graph, tree, found);
    std::vector<OpKind> kind_of_group(graph.nodes.size(), OpKind::elemwise);
    for (const RelayGroup& g : found)
      for (size_t n : g.members) kind_of_group[g.root] = std::max(kind_of_group[g.root], graph.nodes[n].kind);
    for (const RelayGroup& g : found) {
      if (!g.is_kernel) continue;
      const std::string& name = graph.op(g.root).name;
      if (auto node = std::ranges::find(nodes, name, &DataflowNode::name); node != nodes.end()) {
        kernels_.dump += "inside of " + name + "\n";
        group(program_of(p, *node), options, {});
        continue;
      }
      FusionGroup made;
      for (size_t n : g.members) made.definitions.push_back(*p.find(graph.op(n).name));
      for (size_t n : g.parameters)
        if (graph.op(n).form == DataflowOp::Form::call && made.reason.empty()) made.reason = reason(graph, tree, n, kind_of_group[n]);
      results_.push_back(*p.find(name));
      kernels_.groups.push_back(std::move(made));
    }
  }

  const Program& direction_;
  RelayKernels kernels_;
  std::vector<TensorId> results_;
};

}  // namespace

RelayKernels relay_kernels(const Program& direction, const RelayOptions& options, const OpaqueNodes& nodes) {
  return Grouper(direction).run(options, nodes);
}

std::string group_by_policy(Program& direction, PlanRequest& request, const OpaqueNodes& nodes) {
  if (request.options.policy != FusePolicy::relay) return {};
  RelayKernels kernels = relay_kernels(direction, request.options.relay, nodes);
  direction = std::move(kernels.program);
  request.groups = std::move(kernels.groups);
  return std::move(kernels.dump);
}

}  // namespace xhat
