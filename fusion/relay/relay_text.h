// The steps of the classic policy as text: its graph, the post-dominator tree, the groups.
#pragma once
#include <string>
#include <vector>

#include "fusion/relay/post_dominators.h"
#include "fusion/relay/relay.h"

namespace xhat::fusion {

// "level 1, groups of at most 256 ops, kernels of any number of arguments, tensors of constants are arguments"
std::string to_text(const RelayOptions& options);

// A line per op: number, name, kind, its users, its immediate post-dominator with the largest kind on the paths to it, its group.
//   1  conv  out_fusable  2 3  4 (broadcast)  {conv a b add}
std::string table_text(const ForwardGraph& graph, const std::vector<PostDominator>& tree, const std::vector<RelayGroup>& groups);

// The post-dominator tree: every op below its immediate post-dominator. Results and parameters, which have none, are at the left.
std::string to_text(const ForwardGraph& graph, const std::vector<PostDominator>& tree);

// The groups after each phase. Element 0: before the first phase.
std::vector<std::vector<RelayGroup>> relay_phases(const ForwardGraph& graph, const RelayOptions& options = {});

}  // namespace xhat::fusion
