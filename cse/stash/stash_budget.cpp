#include "cse/stash/stash_budget.h"

#include <algorithm>
#include <optional>
#include <queue>

namespace xhat {
namespace {

enum class Fixed : uint8_t { open, kept, never_kept };

struct Half {
  int64_t bound = 0;
  int number = 0;        // older first among equals, so that equal questions get equal answers
  size_t undecided = 0;  // what to branch on
  std::vector<Fixed> fixed;
  bool operator<(const Half& o) const { return bound != o.bound ? bound > o.bound : number > o.number; }
};

class Search {
 public:
  Search(const std::vector<CutNode>& nodes, int64_t budget, int most)
      : nodes_(nodes), budget_(budget), most_(most) {
    int64_t total = 1, bytes = 1;
    for (const CutNode& n : nodes) {
      for (int64_t price : {n.keep_ps, n.recompute_ps}) total += price == kNever ? 0 : price;
      bytes += n.bytes;
    }
    // The flow adds up what enters every node.
    const int64_t room = (int64_t{1} << 60) / (static_cast<int64_t>(nodes.size()) + 1);
    while (scale_ < (int64_t{1} << 30) && total * scale_ < room / 2) scale_ *= 2;
    highest_ = room / bytes;
  }

  BudgetCut run() {
    std::priority_queue<Half> open;
    auto enter = [&](std::vector<Fixed> fixed) {
      auto half = bounded(std::move(fixed));
      if (half && half->bound < best_.cost_ps) open.push(*half);
    };
    best_.cost_ps = kNever;
    enter(std::vector<Fixed>(nodes_.size(), Fixed::open));
    while (!open.empty() && open.top().bound < best_.cost_ps && best_.explored < most_) {
      Half half = open.top();
      open.pop();
      for (Fixed f : {Fixed::never_kept, Fixed::kept}) {
        half.fixed[half.undecided] = f;
        enter(half.fixed);
      }
    }
    int64_t bound = open.empty() ? kNever : open.top().bound;
    best_.lower_bound_ps = std::min(bound, best_.cost_ps);
    best_.optimal = best_.lower_bound_ps == best_.cost_ps;
    return best_;
  }

 private:
  const std::vector<CutNode>& nodes_;
  const int64_t budget_;
  const int most_;
  int64_t scale_ = 1;    // of prices, so that a price per byte is a fraction of a picosecond
  int64_t highest_ = 0;  // price per byte
  BudgetCut best_;

  // Choices that the fixed ones allow, and what they cost there.
  Cut valued(const std::vector<CutNode>& nodes, const Cut& cut) {
    std::vector<bool> keep(nodes.size());
    for (size_t v = 0; v < nodes.size(); ++v) keep[v] = cut.choices[v] == Choice::kept;
    Cut free = consequences(nodes_, keep);
    if (free.cost_ps != kNever && free.bytes <= budget_ && free.cost_ps < best_.cost_ps) {
      int explored = best_.explored;
      static_cast<Cut&>(best_) = free;
      best_.explored = explored;
    }
    return consequences(nodes, keep);
  }

  // The best price on bytes, by the two lines (cost, bytes) that meet at it: where they meet is the next to try.
  std::optional<Half> bounded(std::vector<Fixed> fixed) {
    Half half{0, best_.explored++, 0, std::move(fixed)};
    std::vector<CutNode> nodes = nodes_;
    for (size_t v = 0; v < nodes.size(); ++v) {
      if (half.fixed[v] == Fixed::never_kept) nodes[v].keep_ps = kNever;
      if (half.fixed[v] == Fixed::kept) nodes[v].recompute_ps = kNever, nodes[v].needed = true;
    }
    Cut over = cheapest_cut(nodes);
    if (over.cost_ps == kNever) return std::nullopt;
    half.bound = over.cost_ps;
    over = valued(nodes, over);
    if (over.bytes <= budget_) return std::nullopt;  // the best of its half, and noted
    std::vector<CutNode> bytes_only = nodes;
    for (CutNode& n : bytes_only) {
      if (n.keep_ps != kNever) n.keep_ps = n.bytes;
      if (n.recompute_ps != kNever) n.recompute_ps = 0;
    }
    Cut within = cheapest_cut(bytes_only);
    if (half.number == 0) best_.bytes = within.lower_bound_ps;
    if (within.lower_bound_ps > budget_) return std::nullopt;
    within = valued(nodes, within);
    while (true) {
      int64_t price = meeting(over, within);
      std::vector<CutNode> priced = nodes;
      for (CutNode& n : priced) {
        if (n.keep_ps != kNever) n.keep_ps = n.keep_ps * scale_ + price * n.bytes;
        if (n.recompute_ps != kNever) n.recompute_ps *= scale_;
      }
      Cut cut = cheapest_cut(priced);
      int64_t bound = cut.lower_bound_ps - price * budget_;
      if (bound > 0) half.bound = std::max(half.bound, (bound + scale_ - 1) / scale_);
      cut = valued(nodes, cut);
      // Only a line strictly below where the two meet is news; fewer bytes or less cost, so this ends.
      if (cut.bytes <= budget_ ? cut.bytes <= within.bytes || cut.cost_ps >= within.cost_ps
                               : cut.bytes >= over.bytes || cut.cost_ps <= over.cost_ps)
        break;
      (cut.bytes <= budget_ ? within : over) = cut;
    }
    // Of what only the dearer corner in bytes keeps, the largest: there is one, it takes more bytes.
    int64_t largest = 0;
    for (size_t v = 0; v < nodes.size(); ++v)
      if (over.choices[v] == Choice::kept && within.choices[v] != Choice::kept && nodes[v].bytes > largest)
        half.undecided = v, largest = nodes[v].bytes;
    return half;
  }

  int64_t meeting(const Cut& over, const Cut& within) const {
    int64_t cost = std::max<int64_t>(0, within.cost_ps - over.cost_ps), bytes = over.bytes - within.bytes;
    return std::min(highest_, cost * scale_ / bytes);
  }
};

}  // namespace

BudgetCut cheapest_cut_within(const std::vector<CutNode>& nodes, int64_t bytes, int limit) {
  return Search(nodes, bytes, limit).run();
}

std::vector<BudgetCut> pareto_cuts(const std::vector<CutNode>& nodes, int64_t most_points) {
  std::vector<BudgetCut> front;
  BudgetCut next = cheapest_cut_within(nodes, INT64_MAX);
  const int64_t step = std::max<int64_t>(1, next.bytes / most_points);
  while (next.cost_ps != kNever) {
    BudgetCut smaller = cheapest_cut_within(nodes, next.bytes - 1);
    // As cheap as what is smaller: not on the front.
    if (smaller.cost_ps > next.cost_ps) {
      int64_t bytes = next.bytes;
      // Beyond the limit a smaller one may turn out to be cheaper.
      while (!front.empty() && front.back().cost_ps >= next.cost_ps) front.pop_back();
      front.push_back(std::move(next));
      if (step > 1 && smaller.cost_ps != kNever && smaller.bytes > bytes - step) {
        BudgetCut further = cheapest_cut_within(nodes, bytes - step);
        // None so small: the last point.
        smaller = further.cost_ps != kNever ? std::move(further) : cheapest_cut_within(nodes, further.bytes);
      }
    }
    next = std::move(smaller);
  }
  return front;
}

}  // namespace xhat
