#include "cse/stash/stash_cut.h"

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/push_relabel_max_flow.hpp>

namespace xhat {
namespace {

using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
using Graph = boost::adjacency_list<
    boost::vecS, boost::vecS, boost::directedS, boost::no_property,
    boost::property<boost::edge_capacity_t, int64_t,
                    boost::property<boost::edge_residual_capacity_t, int64_t,
                                    boost::property<boost::edge_reverse_t, Traits::edge_descriptor>>>>;

struct Network {
  Graph graph;
  void edge(size_t from, size_t to, int64_t capacity) {
    auto forth = boost::add_edge(from, to, graph).first;
    auto back = boost::add_edge(to, from, graph).first;
    boost::put(boost::edge_capacity, graph, forth, capacity);
    boost::put(boost::edge_capacity, graph, back, int64_t{0});
    boost::put(boost::edge_reverse, graph, forth, back);
    boost::put(boost::edge_reverse, graph, back, forth);
  }
};

}  // namespace

Cut consequences(const std::vector<CutNode>& nodes, const std::vector<bool>& keep) {
  Cut cut;
  cut.choices.assign(nodes.size(), Choice::unneeded);
  std::vector<size_t> open;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].needed) open.push_back(i);
  while (!open.empty()) {
    size_t v = open.back();
    open.pop_back();
    if (cut.choices[v] != Choice::unneeded) continue;
    cut.choices[v] = keep[v] ? Choice::kept : Choice::recomputed;
    int64_t price = keep[v] ? nodes[v].keep_ps : nodes[v].recompute_ps;
    if (price == kNever) {
      cut.cost_ps = kNever;
      return cut;
    }
    cut.cost_ps += price;
    if (keep[v])
      cut.bytes += nodes[v].bytes;
    else
      open.insert(open.end(), nodes[v].operands.begin(), nodes[v].operands.end());
  }
  return cut;
}

Cut cheapest_cut(const std::vector<CutNode>& nodes) {
  int64_t infinite = 1;
  for (const CutNode& n : nodes)
    for (int64_t price : {n.keep_ps, n.recompute_ps}) infinite += price == kNever ? 0 : price;
  size_t source = 2 * nodes.size(), sink = source + 1;
  Network network{Graph(sink + 1)};
  for (size_t v = 0; v < nodes.size(); ++v) {
    network.edge(source, 2 * v, std::min(nodes[v].recompute_ps, infinite));
    network.edge(2 * v, 2 * v + 1, std::min(nodes[v].keep_ps, infinite));
    for (size_t u : nodes[v].operands) network.edge(2 * u + 1, 2 * v, infinite);
    if (nodes[v].needed) network.edge(2 * v + 1, sink, infinite);
  }
  Graph& g = network.graph;
  int64_t flow = boost::push_relabel_max_flow(g, source, sink);
  if (flow >= infinite) return {std::vector<Choice>(nodes.size(), Choice::unneeded), kNever, kNever, 0};
  // Nearest to the backward: the sink side is only what still reaches the sink.
  std::vector<bool> reaches(sink + 1);
  std::vector<size_t> open = {sink};
  reaches[sink] = true;
  while (!open.empty()) {
    size_t v = open.back();
    open.pop_back();
    for (auto [e, end] = boost::out_edges(v, g); e != end; ++e) {
      size_t u = boost::target(*e, g);
      auto towards = boost::get(boost::edge_reverse, g, *e);
      if (reaches[u] || boost::get(boost::edge_residual_capacity, g, towards) == 0) continue;
      reaches[u] = true;
      open.push_back(u);
    }
  }
  std::vector<bool> keep(nodes.size());
  for (size_t v = 0; v < nodes.size(); ++v) keep[v] = !reaches[2 * v];
  Cut cut = consequences(nodes, keep);
  cut.lower_bound_ps = flow;
  return cut;
}

}  // namespace xhat
