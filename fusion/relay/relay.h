// The fusion policy of classic graph compilers: Relay's FuseOps, rule for rule, over a forward graph (fusion/relations/forward_graph).
//
// Every node starts as a group of its own; a group has the kind of its node, and is anchored if that is out_fusable.
// Then three phases visit the nodes in order: a node joins its immediate post-dominator, with every node between them, if a row of
// kRules (relay.cpp) allows the kinds between and at the end.
//
//   phase 0   out_fusable ops take the elementwise ops after them; elementwise ops and broadcasts join their user, also a reduction
//   phase 1   injective ops and tuples join too: later than phase 0, so that the groups of convolutions are complete
//   phase 2   remaining ops join tuples that went into an injective op (the fields of a concat)
//
// A group never has two anchors, no op after a reduction joins its group, and nothing is computed twice.
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

// The groups, in order of their roots. Every node is in exactly one.
std::vector<RelayGroup> relay_groups(const ForwardGraph& graph, const RelayOptions& options = {});

// "{a} {conv bias relu}": the kernels by the names of their members, without the groups' arguments.
std::string to_text(const ForwardGraph& graph, const std::vector<RelayGroup>& groups);

}  // namespace xhat::fusion
