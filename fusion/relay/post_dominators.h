// For every node of a forward graph the nearest node that all ways from it to the results go through: where its value has
// been used up.
//
//     conv ─► a ─┐
//       │        add      the immediate post-dominator of conv, a and b is add
//       └───► b ─┘
//
// The graph has no cycles and is numbered arguments first, so one sweep backwards does it: a node's parent in the tree is
// the lowest common ancestor of its users. On the way the sweep keeps the largest kind met between node and parent:
// of the node's own edges, and of each tree edge that was climbed.
#pragma once
#include <optional>
#include <vector>

#include "fusion/relations/forward_graph.h"

namespace xhat::fusion {

struct PostDominator {
  std::optional<size_t> parent;  // none: external, or the ways never meet
  int depth = 1;                 // of the node in the tree
  OpKind kind = OpKind::opaque;  // the largest between node and parent
};

std::vector<PostDominator> post_dominators(const ForwardGraph& graph);

}  // namespace xhat::fusion
