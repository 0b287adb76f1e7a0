// The classic policy's working, for people: its graph, the post-dominator tree, the groups.
#pragma once
#include <string>
#include <vector>

#include "fusion/relay/post_dominators.h"
#include "fusion/relay/relay.h"

namespace xhat::fusion {

// "level 1, groups of at most 256 ops, kernels of any number of arguments, tensors of constants are arguments"
std::string to_text(const RelayOptions& options);

// A line per op: number, name, kind, who uses it, its immediate post-dominator with the largest kind on the ways there, its group.
//   1  conv  out_fusable  2 3  4 (broadcast)  {conv a b add}
std::string table_text(const ForwardGraph& graph, const std::vector<PostDominator>& tree, const std::vector<RelayGroup>& groups);

// Every op below its immediate post-dominator; those that have none, results and parameters, at the left.
std::string to_text(const ForwardGraph& graph, const std::vector<PostDominator>& tree);

// The groups after each phase: element 0 is before the first.
std::vector<std::vector<RelayGroup>> relay_phases(const ForwardGraph& graph, const RelayOptions& options = {});

}  // namespace xhat::fusion
