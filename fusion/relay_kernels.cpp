#include "fusion/relay_kernels.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "cse/auto_inliner.h"
#include "cse/lift_reductions.h"
#include "fusion/post_dominators.h"
#include "fusion/relations.h"

namespace xhat {

using namespace fusion;

namespace {

// Why the value of `root`, which is `kind`, is not used up in its own kernel.
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
  p.body.definitions.clear();
  std::set<TensorId> known;
  for (const Definition& d : written.body.definitions)
    if (d.direction == Direction::forward && known.insert(d.target()).second) p.body.definitions.push_back(d);
  for (const Definition& d : planned.body.definitions)
    if (d.direction == Direction::backward || !known.contains(d.target())) p.body.definitions.push_back(d);
  p = lift_reductions(ordered(p));
  // Lifted once more, reductions that planning has lifted already are there twice: equal ones become one.
  std::vector<TensorId> maps;
  for (const Definition& d : p.body.definitions)
    if (!is_reduction((*p.arena)[d.body].op)) maps.push_back(d.target());
  return inline_maps(p, maps);
}

RelayKernels relay_kernels(const Program& direction, const RelayOptions& options) {
  const DataflowGraph ops = dataflow(direction);
  const ForwardGraph graph = forward_graph(ops);
  const std::vector<PostDominator> tree = post_dominators(graph);
  const std::vector<RelayGroup> found = relay_groups(graph, options);
  std::vector<TensorId> tensors = direction.inputs;  // of the ops, in order
  for (const Definition& d : direction.body.definitions) tensors.push_back(d.target());
  auto tensor = [&](size_t node) { return tensors[graph.nodes[node].op]; };

  std::vector<OpKind> kind_of_group(graph.nodes.size(), OpKind::elemwise);
  for (const RelayGroup& g : found)
    for (size_t n : g.members) kind_of_group[g.root] = std::max(kind_of_group[g.root], graph.nodes[n].kind);

  RelayKernels kernels;
  std::vector<TensorId> results;
  for (const RelayGroup& g : found) {
    if (!g.is_kernel) continue;
    FusionGroup group;
    for (size_t n : g.members) group.definitions.push_back(tensor(n));
    for (size_t n : g.parameters)
      if (graph.op(n).form == DataflowOp::Form::call && group.reason.empty())
        group.reason = reason(graph, tree, n, kind_of_group[n]);
    results.push_back(tensor(g.root));
    kernels.groups.push_back(std::move(group));
  }
  kernels.program = inline_maps(direction, results);
  kernels.dump = debug_dump(graph);
  return kernels;
}

std::string group_by_policy(Program& direction, FusionOptions& options) {
  if (options.policy != FusePolicy::relay) return {};
  RelayKernels kernels = relay_kernels(direction, options.relay);
  direction = std::move(kernels.program);
  options.groups = std::move(kernels.groups);
  return std::move(kernels.dump);
}

}  // namespace xhat
