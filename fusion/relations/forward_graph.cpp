#include "fusion/relations/forward_graph.h"

#include <algorithm>
#include <optional>

namespace xhat::fusion {
namespace {

using Form = DataflowOp::Form;

OpKind op_kind(const DataflowGraph& g, const DataflowOp& op) {
  switch (op.form) {
    case Form::parameter:
    case Form::stop:
    case Form::control: return OpKind::opaque;
    // A scalar constant goes inside the kernel; a tensor of constants is an argument like any other.
    case Form::constant: return op.shape.empty() ? OpKind::elemwise : OpKind::opaque;
    case Form::call: return op.kind;
    case Form::tuple: return OpKind::tuple;
    case Form::tuple_get: break;
  }
  const DataflowOp& tuple = g.ops[op.args[0]];
  bool tensors = std::ranges::all_of(tuple.form == Form::tuple ? tuple.args : std::vector<size_t>(),
                                     [&](size_t field) { return g.ops[field].is_tensor; });
  return tensors ? OpKind::injective : OpKind::opaque;
}

// The kind of the edge from an argument to an op of kind `kind`; none: the argument becomes external.
std::optional<OpKind> edge_kind(const DataflowOp& arg, const DataflowOp& op, OpKind kind) {
  switch (op.form) {
    case Form::parameter:
    case Form::constant:
    case Form::control: return std::nullopt;
    case Form::tuple: return arg.is_tensor ? std::optional(OpKind::injective) : std::nullopt;
    case Form::tuple_get: return kind == OpKind::injective ? std::optional(kind) : std::nullopt;
    case Form::stop:
    case Form::call: break;
  }
  return kind == OpKind::broadcast && arg.shape == op.shape ? OpKind::elemwise : kind;
}

// Ops in post-DFS order: parameters first, then the ops that each result needs, arguments before users.
std::vector<size_t> numbered(const DataflowGraph& g) {
  std::vector<size_t> order;
  std::vector<char> seen(g.ops.size(), 0);
  struct Visit {
    size_t op, next;
  };
  auto visit = [&](size_t root) {
    if (seen[root]) return;
    std::vector<Visit> open = {{root, 0}};
    seen[root] = 1;
    while (!open.empty()) {
      auto& [op, next] = open.back();
      if (next == g.ops[op].args.size()) {
        order.push_back(op);
        open.pop_back();
      } else if (size_t arg = g.ops[op].args[next++]; !seen[arg]) {
        seen[arg] = 1;
        open.push_back({arg, 0});
      }
    }
  };
  for (size_t i = 0; i < g.ops.size(); ++i)
    if (g.ops[i].form == Form::parameter) visit(i);
  for (size_t r : g.results) visit(r);
  return order;
}

}  // namespace

std::string_view name_of(OpKind kind) {
  switch (kind) {
    case OpKind::elemwise: return "elemwise";
    case OpKind::broadcast: return "broadcast";
    case OpKind::injective: return "injective";
    case OpKind::comm_reduce: return "comm_reduce";
    case OpKind::out_fusable: return "out_fusable";
    case OpKind::tuple: return "tuple";
    case OpKind::opaque: return "opaque";
  }
  return "?";
}

ForwardGraph forward_graph(const DataflowGraph& ops) {
  ForwardGraph graph{&ops, {}};
  std::vector<size_t> node_of(ops.ops.size());
  for (size_t op : numbered(ops)) {
    const DataflowOp& o = ops.ops[op];
    const size_t number = graph.nodes.size();
    node_of[op] = number;
    ForwardNode node{op, op_kind(ops, o), o.form == Form::parameter, {}, {}};
    for (size_t arg : o.args) {
      ForwardNode& from = graph.nodes[node_of[arg]];
      node.args.push_back(node_of[arg]);
      if (auto kind = edge_kind(ops.ops[arg], o, node.kind)) from.users.push_back({number, *kind});
      else from.external = true;
    }
    graph.nodes.push_back(std::move(node));
  }
  for (size_t r : ops.results) graph.nodes[node_of[r]].external = true;
  return graph;
}

std::string debug_dump(const ForwardGraph& graph) {
  std::string text;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ForwardNode& n = graph.nodes[i];
    text += std::to_string(i) + " " + graph.op(i).name + " " + std::string(name_of(n.kind));
    text += n.external ? ", external:" : ":";
    for (const ForwardEdge& e : n.users) text += " " + std::to_string(e.to) + ":" + std::string(name_of(e.kind));
    text += "\n";
  }
  return text;
}

}  // namespace xhat::fusion
