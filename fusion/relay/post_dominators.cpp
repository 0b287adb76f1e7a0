#include "fusion/relay/post_dominators.h"

#include <algorithm>

namespace xhat::fusion {
namespace {

using Tree = std::vector<PostDominator>;

// The lowest common ancestor of two nodes of the tree. `kind` becomes the largest kind of the edges climbed.
std::optional<size_t> common_ancestor(const Tree& tree, std::optional<size_t> a, std::optional<size_t> b,
                                      OpKind& kind) {
  auto climb = [&](std::optional<size_t>& n) {
    kind = std::max(kind, tree[*n].kind);
    n = tree[*n].parent;
  };
  while (a != b) {
    if (!a || !b) return std::nullopt;
    const int depth_a = tree[*a].depth, depth_b = tree[*b].depth;
    if (depth_a >= depth_b) climb(a);
    if (depth_b >= depth_a) climb(b);
  }
  return a;
}

}  // namespace

std::vector<PostDominator> post_dominators(const ForwardGraph& graph) {
  Tree tree(graph.nodes.size());
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const ForwardNode& n = graph.nodes[i];
    if (n.external || n.users.empty()) continue;
    OpKind kind = OpKind::elemwise;
    std::optional<size_t> parent = n.users[0].to;
    for (const ForwardEdge& e : n.users) {
      parent = common_ancestor(tree, parent, e.to, kind);
      kind = std::max(kind, e.kind);
    }
    tree[i] = {parent, parent ? tree[*parent].depth + 1 : 1, kind};
  }
  return tree;
}

}  // namespace xhat::fusion
