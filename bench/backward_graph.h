// A backward as a graph, whoever made it, and what is counted in it: the same for xhat as for its peers.
//
// Leaves are tensors in memory: inputs, outputs, what the forward keeps, cotangents. Nodes are maps (element by
// element, views and broadcasts too) and sums (every reduction; a matrix product is one). Results are the gradients.
//
//   sums    nodes that are sums
//   flops   one per element and arithmetic operation, one per element that a sum adds, two per multiplication of a
//           matrix product; none for choosing, comparing, converting, moving
//   passes  how often a tensor of at least |x| elements is read or written, if everybody fuses without fault: no map
//           is ever written down. A sum or a gradient is computed in one sweep over the leaves and sums that it needs,
//           and only after the sums among them are complete. All that can be computed at one time shares one sweep,
//           which reads a tensor once. What is large of sums and gradients is written once.
#pragma once
#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace xhat::bench {

struct GraphNode {
  enum class Kind : uint8_t { leaf, map, sum } kind = Kind::leaf;
  int64_t elements = 0;
  int64_t flops = 0;
  std::vector<size_t> operands = {};  // earlier nodes
};

struct BackwardGraph {
  std::vector<GraphNode> nodes;  // operands before users
  std::vector<size_t> results;
};

struct BackwardCounts {
  int sums = 0;
  int passes = 0;
  int64_t flops = 0;
};

class BackwardCounter {
 public:
  BackwardCounter(const BackwardGraph& graph, int64_t large) : g_(graph), large_(large) {
    for (size_t r : g_.results) need(r);
    for (size_t i : needed_)
      if (g_.nodes[i].kind == GraphNode::Kind::sum) add_root(i);
    for (size_t r : std::set<size_t>(g_.results.begin(), g_.results.end()))
      if (g_.nodes[r].kind != GraphNode::Kind::sum) add_root(r);
  }

  BackwardCounts count() {
    BackwardCounts c;
    for (size_t i : needed_) {
      c.sums += g_.nodes[i].kind == GraphNode::Kind::sum;
      c.flops += g_.nodes[i].flops;
    }
    schedule();
    c.passes = traffic();
    return c;
  }

 private:
  struct Root {
    size_t node;
    std::set<size_t> reads;  // leaves, and sums that are complete
    int sweep = 0;
  };
  const BackwardGraph& g_;
  int64_t large_;
  std::set<size_t> needed_;
  std::vector<Root> roots_;  // sums in their order, then gradients

  void need(size_t node) {
    if (!needed_.insert(node).second) return;
    for (size_t o : g_.nodes[node].operands) need(o);
  }

  // What a sweep must read to have the node: through maps, up to leaves and sums.
  void sources(size_t node, std::set<size_t>& seen, std::set<size_t>& found) const {
    if (!seen.insert(node).second) return;
    if (g_.nodes[node].kind != GraphNode::Kind::map)
      found.insert(node);
    else
      for (size_t o : g_.nodes[node].operands) sources(o, seen, found);
  }

  void add_root(size_t node) {
    Root root{node, {}};
    std::set<size_t> seen;
    if (g_.nodes[node].kind == GraphNode::Kind::sum)
      for (size_t o : g_.nodes[node].operands) sources(o, seen, root.reads);
    else
      sources(node, seen, root.reads);
    for (const Root& earlier : roots_)
      if (root.reads.contains(earlier.node)) root.sweep = std::max(root.sweep, earlier.sweep + 1);
    roots_.push_back(std::move(root));
  }

  // As early as possible; then later where that saves a read, as long as nobody waits for it.
  void schedule() {
    int last = 0;
    for (const Root& r : roots_) last = std::max(last, r.sweep);
    for (size_t i = roots_.size(); i-- > 0;) {
      int latest = last;
      for (const Root& user : roots_)
        if (user.reads.contains(roots_[i].node)) latest = std::min(latest, user.sweep - 1);
      int best = roots_[i].sweep, least = traffic();
      for (int sweep = best + 1, first = best; sweep <= latest; ++sweep) {
        roots_[i].sweep = sweep;
        if (int t = traffic(); t < least) least = t, best = sweep;
        roots_[i].sweep = first;
      }
      roots_[i].sweep = best;
    }
  }

  bool large(size_t node) const { return g_.nodes[node].elements >= large_; }

  int traffic() const {
    std::set<std::pair<int, size_t>> reads;
    int written = 0;
    for (const Root& r : roots_) {
      written += large(r.node);
      for (size_t leaf : r.reads)
        if (large(leaf)) reads.insert({r.sweep, leaf});
    }
    return written + static_cast<int>(reads.size());
  }
};

}  // namespace xhat::bench
