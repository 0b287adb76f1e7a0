// The fusion policy of classic graph compilers: Relay's FuseOps, rule for rule, over a forward graph (fusion/relations/forward_graph).
//
// Every node starts as a group of its own; a group has the kind of its node, and is anchored if that is out_fusable.
// Then, in three phases, nodes in order: a node joins its immediate post-dominator, with every node between them, if
// all of these bear it: a row of kRules (relay.cpp) says which kinds may stand between and at the end.
//
//   phase 0   out_fusable ops take what is elementwise after them; elementwise and broadcasts go into what uses them,
//             a reduction at the end included
//   phase 1   injective ops and tuples too: not before, so that convolutions have finished
//   phase 2   what is left into tuples that went into an injective op (the fields of a concat)
//
// A group never holds two anchors, a reduction takes nothing behind it, and nothing is ever computed twice.
// The algorithm: T. Chen et al., TVM (OSDI 2018), and the comments of its FuseOps pass.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "fusion/plan/relay_options.h"
#include "fusion/relations/forward_graph.h"

namespace xhat::fusion {

struct RelayGroup {
  size_t root = 0;                 // the node whose value leaves the group
  std::vector<size_t> members;     // nodes, ascending
  std::vector<size_t> parameters;  // nodes outside, in order of first use
  bool is_kernel = false;          // computes something; no: a parameter, a constant, a tuple, a mark
  bool only_reshapes = false;
};

// In order of their roots. Every node is in exactly one.
std::vector<RelayGroup> relay_groups(const ForwardGraph& graph, const RelayOptions& options = {});

// "{a} {conv bias relu}": the kernels by the names of their members, arguments of the group left out.
std::string to_text(const ForwardGraph& graph, const std::vector<RelayGroup>& groups);

}  // namespace xhat::fusion
