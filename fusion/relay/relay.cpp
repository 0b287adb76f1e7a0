#include "fusion/relay/relay.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "expr/core/error.h"
#include "fusion/relay/post_dominators.h"

namespace xhat::fusion {
namespace {

using Form = DataflowOp::Form;
using enum OpKind;

// A node of one of `kinds` joins its post-dominator in this phase, if the kinds of the edges between them, of the groups between, and of
// the group at the end are at most the three limits.
struct Rule {
  std::vector<OpKind> kinds;
  int phase;
  OpKind edges, between, end;
};
const Rule kRules[] = {
    {{out_fusable}, 0, elemwise, broadcast, broadcast},
    {{elemwise, broadcast}, 0, comm_reduce, injective, out_fusable},
    {{elemwise, broadcast}, 1, comm_reduce, injective, out_fusable},
    {{injective, tuple}, 1, opaque, injective, injective},
    {{elemwise, broadcast, injective}, 2, opaque, injective, injective},
};

const Rule* rule_for(OpKind kind, int phase) {
  for (const Rule& r : kRules)
    if (r.phase == phase && std::ranges::find(r.kinds, kind) != r.kinds.end()) return &r;
  return nullptr;
}

class Partitioner {
 public:
  Partitioner(const ForwardGraph& graph, const RelayOptions& options)
      : graph_(graph), options_(options), visited_(graph.nodes.size(), 0) {
    for (size_t i = 0; i < graph.nodes.size(); ++i)
      groups_.push_back({i, graph.nodes[i].kind, graph.nodes[i].kind == out_fusable, 1, own_arguments(i)});
  }

  void run() {
    if (options_.opt_level == 0) return;
    tree_ = post_dominators(graph_);
    for (int phase = 0; phase < options_.phases; ++phase)
      for (size_t n = 0; n < groups_.size(); ++n) {
        fuse_postponed(n);
        if (groups_[n].kind != opaque && tree_[n].parent) fuse(n, *tree_[n].parent, phase);
      }
  }

  size_t root(size_t n) {
    while (groups_[n].parent != n) n = groups_[n].parent = groups_[groups_[n].parent].parent;
    return n;
  }

 private:
  // One per node. Only a root's record describes its group; the other records are as they were at their merge.
  struct Group {
    size_t parent;
    OpKind kind;
    bool anchored;
    size_t nodes;
    size_t arguments;
  };

  void fuse(size_t n, size_t sink, int phase) {
    const std::vector<size_t> path = between(n, sink);
    if (count(path, sink) > options_.max_fuse_depth) return;
    postpone_to_.reset();
    if (too_many_arguments(n)) return;
    const Rule* rule = rule_for(groups_[n].kind, phase);
    if (!rule) return;
    const OpKind sink_kind = groups_[sink].kind;
    if (phase == 2 ? sink_kind != tuple : root(n) == root(sink) || sink_kind == tuple) return;
    if (tree_[n].kind > rule->edges || groups_[root(sink)].kind > rule->end) return;
    for (size_t i = 1; i < path.size(); ++i)
      if (groups_[root(path[i])].kind > rule->between) return;
    if (postpone_to_) postponed_[*postpone_to_].push_back(n);
    else merge(path, sink);
  }

  // n, then every node on a path from it to its post-dominator `sink`, without the sink.
  std::vector<size_t> between(size_t n, size_t sink) {
    ++stamp_;
    std::vector<size_t> path = {n};
    visited_[n] = stamp_;
    for (size_t i = 0; i < path.size(); ++i)
      for (const ForwardEdge& e : graph_.nodes[path[i]].users)
        if (e.to != sink && visited_[e.to] != stamp_) {
          visited_[e.to] = stamp_;
          path.push_back(e.to);
        }
    return path;
  }

  // Approximate size of the merged group: for the nodes on the path it counts their own records, not their groups'. Relay counts like
  // this, and equal groups are the purpose of this policy.
  size_t count(const std::vector<size_t>& path, size_t sink) {
    size_t nodes = groups_[root(sink)].nodes;
    for (size_t n : path) nodes += groups_[n].nodes;
    return nodes;
  }

  void merge(const std::vector<size_t>& path, size_t sink) {
    const size_t into = root(sink);
    for (size_t n : path) {
      const size_t from = root(n);
      if (from == into) continue;
      Group& child = groups_[from];
      Group& parent = groups_[into];
      parent.nodes += child.nodes;
      parent.arguments += child.arguments;
      child.parent = into;
      if (!child.anchored) continue;
      if (parent.anchored || (child.kind > broadcast && parent.kind > broadcast))
        throw Bug("relay: two groups that cannot be one were merged");
      parent.anchored = true;
      parent.kind = std::max(parent.kind, child.kind);
    }
  }

  // The limit on the parameters of a kernel. If the group of an argument has not been counted yet, the node waits until its user is visited.

  // A buffer of unknown extents has these extents as further parameters, and an argument also its strides.
  static size_t unknown_extents(const DataflowOp& op) {
    return static_cast<size_t>(std::ranges::count(op.shape, "?"));
  }
  static size_t buffer_arguments(const DataflowOp& op) {
    const size_t unknown = unknown_extents(op);
    return 1 + (unknown > 0 ? unknown + op.shape.size() : 0);
  }

  size_t own_arguments(size_t n) const {
    const DataflowOp& op = graph_.op(n);
    if (op.form == Form::parameter) return buffer_arguments(op);
    if (op.form != Form::call && op.form != Form::stop && op.form != Form::tuple) return 0;
    size_t sum = 0;
    for (size_t arg : graph_.nodes[n].args) {
      const DataflowOp& from = graph_.op(arg);
      if (from.form == Form::parameter || from.form == Form::tuple_get) sum += buffer_arguments(from);
    }
    return sum;
  }

  bool too_many_arguments(size_t n) {
    const size_t limit = options_.max_arguments == 0 ? 0 : argument_limit(n);
    if (limit == 0) return false;
    size_t most = 0;
    for (const ForwardEdge& e : graph_.nodes[n].users) most = std::max(most, arguments(e.to));
    return most > limit;
  }

  // The limit less the parameters that the results take; 0: no limit.
  size_t argument_limit(size_t n) const {
    size_t results = 0;
    for (const ForwardEdge& e : graph_.nodes[n].users) {
      const DataflowOp& user = graph_.op(e.to);
      results += 1 + (user.form == Form::call ? unknown_extents(user) : 0);
    }
    return options_.max_arguments > results ? options_.max_arguments - results : 0;
  }

  // Calls f(arg) for the arguments of a node that belong to other groups, one for each group.
  template <class F>
  void other_groups(size_t n, F&& f) {
    const Form form = graph_.op(n).form;
    if (form != Form::call && form != Form::stop && form != Form::tuple) return;
    std::unordered_set<size_t> seen = {root(n)};
    for (size_t arg : graph_.nodes[n].args)
      if (graph_.op(arg).form != Form::parameter && seen.insert(root(arg)).second) f(arg);
  }

  size_t arguments(size_t n) {
    size_t sum = groups_[n].arguments;
    other_groups(n, [&](size_t arg) {
      sum += groups_[root(arg)].arguments;
      if (groups_[root(arg)].arguments == 0) postpone_to_ = n;
    });
    return sum;
  }

  // The same, looking through groups that have no arguments of their own.
  size_t arguments_below(size_t n) {
    ++stamp_;
    std::vector<size_t> nodes = {n};
    visited_[n] = stamp_;
    for (size_t i = 0; i < nodes.size(); ++i)
      other_groups(nodes[i], [&](size_t arg) {
        if (groups_[root(arg)].arguments > 0 || visited_[arg] == stamp_) return;
        visited_[arg] = stamp_;
        nodes.push_back(arg);
      });
    std::ranges::sort(nodes);
    std::unordered_map<size_t, size_t> sums;
    for (size_t at : nodes) {
      size_t sum = groups_[at].arguments;
      other_groups(at, [&](size_t arg) {
        const size_t of_group = groups_[root(arg)].arguments;
        sum += of_group > 0 ? of_group : sums.at(arg);
      });
      sums[at] = sum;
    }
    return sums.at(n);
  }

  void fuse_postponed(size_t user) {
    auto it = postponed_.find(user);
    if (it == postponed_.end()) return;
    for (size_t n : it->second) {
      if (arguments_below(user) > argument_limit(user)) continue;
      const size_t sink = *tree_[n].parent;
      if (!groups_[sink].anchored) merge(between(n, sink), sink);
    }
    postponed_.erase(it);
  }

  const ForwardGraph& graph_;
  const RelayOptions& options_;
  std::vector<PostDominator> tree_;
  std::vector<Group> groups_;
  std::optional<size_t> postpone_to_;
  std::map<size_t, std::vector<size_t>> postponed_;
  std::vector<size_t> visited_;  // per node: the stamp of the last walk that visited it
  size_t stamp_ = 0;
};

// A group's parameters: nodes of other groups that its members use, in the order of a walk from the root.
std::vector<size_t> parameters_of(const ForwardGraph& graph, const RelayGroup& g, const RelayOptions& options) {
  std::vector<size_t> found;
  std::unordered_set<size_t> inside(g.members.begin(), g.members.end()), seen;
  struct Visit {
    size_t node, next;
  };
  std::vector<Visit> open = {{g.root, 0}};
  while (!open.empty()) {
    auto& [node, next] = open.back();
    if (next == graph.nodes[node].args.size()) {
      open.pop_back();
      continue;
    }
    const size_t arg = graph.nodes[node].args[next++];
    if (!seen.insert(arg).second) continue;
    if (inside.contains(arg)) open.push_back({arg, 0});
    else if (!options.link_constants || graph.op(arg).form != Form::constant) found.push_back(arg);
  }
  return found;
}

}  // namespace

std::vector<RelayGroup> relay_groups(const ForwardGraph& graph, const RelayOptions& options) {
  Partitioner partitioner(graph, options);
  partitioner.run();
  std::map<size_t, RelayGroup> by_root;
  for (size_t n = 0; n < graph.nodes.size(); ++n) by_root[partitioner.root(n)].members.push_back(n);
  std::vector<RelayGroup> groups;
  for (auto& [root, group] : by_root) {
    group.root = root;
    auto calls = [&](size_t n) { return graph.op(n).form == Form::call; };
    group.is_kernel = std::ranges::any_of(group.members, calls);
    group.only_reshapes = group.is_kernel && std::ranges::all_of(group.members, [&](size_t n) {
      return !calls(n) || graph.op(n).only_reshapes;
    });
    if (group.is_kernel) group.parameters = parameters_of(graph, group, options);
    groups.push_back(std::move(group));
  }
  return groups;
}

std::string to_text(const ForwardGraph& graph, const std::vector<RelayGroup>& groups) {
  std::string text;
  for (const RelayGroup& g : groups) {
    if (!g.is_kernel) continue;
    std::string names;
    for (size_t n : g.members)
      if (graph.op(n).form != Form::constant) names += (names.empty() ? "" : " ") + graph.op(n).name;
    text += (text.empty() ? "{" : " {") + names + "}";
  }
  return text;
}

}  // namespace xhat::fusion
