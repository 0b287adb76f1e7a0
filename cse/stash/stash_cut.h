// What to keep and what to recompute, as a minimum cut: exact.
//
// A value that is needed (by the backward, or to recompute another one) is either kept, at a price, or
// recomputed, at a price, and then its operands are needed. Node v becomes v_in -> v_out with capacity
// keep(v), source -> v_in with recompute(v), operand's u_out -> v_in without limit, and v_out -> sink
// without limit where the backward reads v. On the sink side v_out means needed and v_in means recomputed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace xhat {

constexpr int64_t kNever = INT64_MAX;  // as a price: cannot be kept, or cannot be recomputed

struct CutNode {
  int64_t keep_ps = 0;
  int64_t recompute_ps = kNever;
  int64_t bytes = 0;    // that keeping takes beyond what the caller retains
  bool needed = false;  // read by the backward
  std::vector<std::size_t> operands;
};

enum class Choice : uint8_t { unneeded, kept, recomputed };

struct Cut {
  std::vector<Choice> choices;
  int64_t cost_ps = 0;         // of these choices, counted again from the prices; kNever: impossible
  int64_t lower_bound_ps = 0;  // the flow: no choices cost less
  int64_t bytes = 0;
};

// The cheapest choices; among equals those nearest to the backward.
Cut cheapest_cut(const std::vector<CutNode>& nodes);
// What follows from keeping exactly these (those of them that are needed). Cost kNever: impossible.
Cut consequences(const std::vector<CutNode>& nodes, const std::vector<bool>& keep);

}  // namespace xhat
