#include "cse/match/same_but_for_names.h"

#include <algorithm>
#include <ranges>
#include <set>
#include <unordered_map>

#include "expr/core/exact_ops.h"

namespace xhat {
namespace {

constexpr int kMostSteps = 4000;  // of one comparison that tries operands in both orders

class Comparison {
 public:
  using Pairs = std::vector<std::pair<Id, Id>>;
  explicit Comparison(const Arena& a) : a_(a) {}

  // Meets pairs from the last one on, as the rows of rules are matched. In the order that is written each pair is met once, however often it
  // stands there: that takes no more steps than there are nodes.
  bool meet(Pairs open, AxesOfOther& to, bool in_any_order) {
    while (!open.empty()) {
      const auto [u, v] = open.back();
      open.pop_back();
      if (in_any_order && ++steps_ > kMostSteps) return false;
      if (!in_any_order && !met_.insert({u, v}).second) continue;
      const Node &m = a_[u], &n = a_[v];
      if (m.op != n.op || m.type != n.type || m.arg_count != n.arg_count) return false;
      if (m.op == Op::axis) {
        auto [it, fresh] = to.try_emplace(u, v);
        if (it->second != v) return false;
        if (fresh && std::ranges::count(to | std::views::values, v) > 1) return false;
        continue;
      }
      if (m.arg_count == 0 && !is_read(m.op)) {
        if (u != v) return false;
        continue;
      }
      if (is_read(m.op) && m.symbol != n.symbol) return false;
      if (in_any_order && operands_commute(m.op)) {
        Pairs as_written = open;
        AxesOfOther attempt = to;
        as_written.insert(as_written.end(), {{m.arg(1), n.arg(1)}, {m.arg(0), n.arg(0)}});
        if (meet(std::move(as_written), attempt, true)) {
          to = attempt;
          return true;
        }
        open.insert(open.end(), {{m.arg(0), n.arg(1)}, {m.arg(1), n.arg(0)}});
        continue;
      }
      for (size_t i = 0; i < m.arg_count; ++i) open.emplace_back(m.arg(i), n.arg(i));
    }
    return true;
  }

 private:
  const Arena& a_;
  int steps_ = 0;
  std::set<std::pair<Id, Id>> met_;
};

size_t mixed(size_t h) {
  h *= 0x9e3779b97f4a7c15;
  return h ^ (h >> 29);
}

}  // namespace

std::optional<AxesOfOther> same_but_for_names(const Arena& a, const std::vector<std::pair<Id, Id>>& pairs) {
  for (bool in_any_order : {false, true}) {
    AxesOfOther to;
    if (Comparison(a).meet(pairs, to, in_any_order)) return to;
  }
  return std::nullopt;
}

size_t key_without_names(const Arena& a, Id root) {
  std::unordered_map<Id, size_t> keys;
  for (Id id : reachable(a, root)) {
    const Node& n = a[id];
    const bool a_name_itself = n.arg_count == 0 && n.op != Op::axis && !is_read(n.op);  // a number, a dim
    size_t key = mixed((static_cast<size_t>(n.op) << 8 | static_cast<size_t>(n.type)) + mixed(a_name_itself   ? id
                                                                                              : is_read(n.op) ? n.symbol
                                                                                                              : 0));
    for (Id x : n.args()) key = operands_commute(n.op) ? key + mixed(keys.at(x)) : mixed(key + keys.at(x));
    keys[id] = key;
  }
  return keys.at(root);
}

}  // namespace xhat
