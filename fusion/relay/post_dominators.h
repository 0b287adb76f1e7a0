// The immediate post-dominator of every node of a forward graph: the nearest node that all paths from it to the results go through.
//
//     conv ─► a ─┐
//       │        add      the immediate post-dominator of conv, a and b is add
//       └───► b ─┘
//
// The graph is acyclic and arguments have smaller numbers, so one sweep backwards suffices: a node's parent in the tree is the lowest common
// ancestor of its users. The sweep also records the largest kind between node and parent: of the node's own edges and of each tree edge climbed.
#pragma once
#include <optional>
#include <vector>

#include "fusion/relations/forward_graph.h"

namespace xhat::fusion {

struct PostDominator {
  std::optional<size_t> parent;  // none: external, or the paths never meet
  int depth = 1;                 // of the node in the tree
  OpKind kind = OpKind::opaque;  // the largest between node and parent
};

std::vector<PostDominator> post_dominators(const ForwardGraph& graph);

}  // namespace xhat::fusion
