#include "cse/match/same_but_for_names.h"

#include <algorithm>
#include <ranges>

namespace xhat {
namespace {

constexpr int kMostSteps = 4000;  // of one comparison: operands in both orders

bool operands_commute(Op op) {
  return op == Op::add || op == Op::mul || op == Op::maximum || op == Op::minimum || op == Op::eq || op == Op::ne || op == Op::land ||
         op == Op::lor;
}

// Meets pairs from the last one on, as the rows of rules are matched.
class Comparison {
 public:
  explicit Comparison(const Arena& a) : a_(a) {}

  bool meet(std::vector<std::pair<Id, Id>> open, AxesOfOther& to) {
    while (!open.empty()) {
      if (++steps_ > kMostSteps) return false;
      const auto [u, v] = open.back();
      open.pop_back();
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
      if (operands_commute(m.op)) {
        auto as_written = open;
        AxesOfOther attempt = to;
        as_written.insert(as_written.end(), {{m.arg(1), n.arg(1)}, {m.arg(0), n.arg(0)}});
        if (meet(std::move(as_written), attempt)) {
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
};

}  // namespace

std::optional<AxesOfOther> same_but_for_names(const Arena& a, std::vector<std::pair<Id, Id>> pairs) {
  AxesOfOther to;
  return Comparison(a).meet(std::move(pairs), to) ? std::optional(to) : std::nullopt;
}

}  // namespace xhat
