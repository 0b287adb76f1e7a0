#include "cse/stash_cut.h"

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/edmonds_karp_max_flow.hpp>

#include "expr/error.h"

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

constexpr size_t kMostEnumerated = 16;  // 65,536 subsets, about 0.1 s

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
  for (const CutNode& n : nodes) infinite += n.keep_ps + (n.recompute_ps == kNever ? 0 : n.recompute_ps);
  size_t source = 2 * nodes.size(), sink = source + 1;
  Network network{Graph(sink + 1)};
  for (size_t v = 0; v < nodes.size(); ++v) {
    network.edge(source, 2 * v, std::min(nodes[v].recompute_ps, infinite));
    network.edge(2 * v, 2 * v + 1, nodes[v].keep_ps);
    for (size_t u : nodes[v].operands) network.edge(2 * u + 1, 2 * v, infinite);
    if (nodes[v].needed) network.edge(2 * v + 1, sink, infinite);
  }
  Graph& g = network.graph;
  int64_t flow = boost::edmonds_karp_max_flow(g, source, sink);
  if (flow >= infinite) throw Bug("stash planner: a value that cannot be recomputed cannot be kept either");
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

Cut cheapest_cut_within(const std::vector<CutNode>& nodes, int64_t bytes) {
  Cut best = cheapest_cut(nodes);
  if (best.bytes <= bytes) return best;
  // The same cut with a price on bytes; its cost less the price of the budget bounds every plan within the
  // budget.
  int64_t bound = best.lower_bound_ps;
  bool found = false;
  auto attempt = [&](int64_t price) {
    std::vector<CutNode> priced = nodes;
    for (CutNode& n : priced) n.keep_ps += price * n.bytes;
    Cut cut = cheapest_cut(priced);
    bound = std::max(bound, cut.lower_bound_ps - price * bytes);
    cut.cost_ps -= price * cut.bytes;
    bool fits = cut.bytes <= bytes;
    if (fits && (!found || cut.cost_ps < best.cost_ps)) best = cut, found = true;
    return fits;
  };
  constexpr int64_t kHighest = int64_t{1} << 24;  // ps per byte: 70,000 times a read
  int64_t low = 0, high = 1;
  while (high < kHighest && !attempt(high)) low = high, high *= 2;
  while (low + 1 < high) {
    int64_t middle = (low + high) / 2;
    (attempt(middle) ? high : low) = middle;
  }
  std::vector<size_t> costly;
  for (size_t v = 0; v < nodes.size(); ++v)
    if (nodes[v].bytes > 0 && nodes[v].recompute_ps != kNever) costly.push_back(v);
  if (costly.size() <= kMostEnumerated) {
    // Which of those that take bytes are kept decides the rest: forbid the others and cut.
    for (size_t subset = 0; subset < size_t{1} << costly.size(); ++subset) {
      std::vector<CutNode> fixed = nodes;
      int64_t least = 0;
      for (size_t i = 0; i < costly.size(); ++i) {
        if (subset >> i & 1)
          least += nodes[costly[i]].bytes;
        else
          fixed[costly[i]].keep_ps = INT64_MAX / 1024;
      }
      if (least > bytes) continue;
      Cut cut = cheapest_cut(fixed);
      if (cut.bytes <= bytes && cut.cost_ps < INT64_MAX / 1024 && (!found || cut.cost_ps < best.cost_ps))
        best = cut, found = true;
    }
    if (found) bound = best.cost_ps;
  }
  if (!found)
    throw Error("the stash budget cannot be met: no choice of kept values takes at most " +
                std::to_string(bytes) + " bytes beyond what the caller keeps; the smallest found takes " +
                std::to_string(best.bytes));
  best.lower_bound_ps = bound;
  return best;
}

}  // namespace xhat
