#include "cse/normalize/layouts.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <ranges>
#include <set>

namespace xhat {
namespace {

// How much a reader counts that has all of the tensor's axes, a tensor that is read beside it, and a sum over some of them.
constexpr int kAlong = 10000, kBeside = 100, kSummed = 1;

class Layouts {
 public:
  explicit Layouts(const Program& p) : p_(p), a_(*p_.arena) {}

  Program run() {
    std::set<TensorId> fixed(p_.outputs.begin(), p_.outputs.end());
    fixed.insert(p_.gradients.begin(), p_.gradients.end());
    for (const Definition& d : p_.definitions()) {
      if (!d.is_call()) continue;
      fixed.insert(d.targets.begin(), d.targets.end());
      fixed.insert(d.arguments.begin(), d.arguments.end());
    }
    for (const Definition& d : std::as_const(p_).definitions() | std::views::reverse) {
      if (d.is_call()) continue;
      std::vector<AxisRange> axes = d.axes;
      int weight = kAlong;
      if (axes.size() > 1 && !fixed.contains(d.target())) {
        const Votes votes = votes_for(d);
        const std::vector<size_t> order = order_by(votes, d);
        if (!std::ranges::is_sorted(order)) orders_[d.target()] = order;
        for (size_t i = 0; i < order.size(); ++i) axes[i] = d.axes[order[i]];
        for (size_t i = 1; i < order.size(); ++i) {
          auto vote = votes.find(std::minmax(order[i - 1], order[i]));
          weight = std::min(weight, vote == votes.end() ? 0 : std::abs(vote->second));
        }
      }
      vote(d, axes, weight);
    }
    return orders_.empty() ? p_ : reordered();
  }

 private:
  using Votes = std::map<std::pair<size_t, size_t>, int>;  // of two dimensions: above 0 if the first comes first

  // The place of the outermost axis that an index has among `axes`; of a bound axis, one behind all.
  static std::optional<size_t> place(const Arena& a, Id index, const std::vector<AxisRange>& axes) {
    std::optional<size_t> first;
    for (Id axis : a[index].free_axes()) {
      const auto at = static_cast<size_t>(std::ranges::find(axes, axis, &AxisRange::axis) - axes.begin());
      first = std::min(first.value_or(at), at);
    }
    return first;
  }

  // weight: of what decided the order of these axes.
  void vote(const Definition& d, const std::vector<AxisRange>& axes, int weight) {
    for (Id id : reachable(a_, d.body)) {
      const Node n = a_[id];
      if (!is_read(n.op) || read_indices(n).size() < 2 || p_.tensors[n.symbol].role != Role::defined) continue;
      std::vector<std::optional<size_t>> places;
      for (Id index : read_indices(n)) places.push_back(place(a_, index, axes));
      const bool along = std::ranges::all_of(places, [&](const auto& x) { return x && *x < axes.size(); });
      for (size_t i = 0; i < places.size(); ++i)
        for (size_t k = i + 1; k < places.size(); ++k)
          if (places[i] && places[k] && *places[i] != *places[k])
            votes_[n.symbol][{i, k}] += (along ? weight : std::min(weight, kSummed)) * (*places[i] < *places[k] ? 1 : -1);
    }
  }

  Votes votes_for(const Definition& d) {
    Votes votes = votes_[d.target()];
    for (Id id : reachable(a_, d.body)) {
      const auto input = dimensions_of_input(d, id);
      for (size_t i = 0; i < input.size(); ++i)
        for (size_t k = i + 1; k < input.size(); ++k)
          if (input[i] && input[k] && *input[i] != *input[k]) votes[{i, k}] += kBeside * (*input[i] < *input[k] ? 1 : -1);
    }
    return votes;
  }

  // The dimensions of its target, in their order.
  std::vector<size_t> order_by(const Votes& votes, const Definition& d) {
    std::vector<std::pair<size_t, size_t>> in_inputs(d.axes.size(), {p_.inputs.size(), 0});
    for (Id id : reachable(a_, d.body)) {
      const auto dimensions = dimensions_of_input(d, id);
      for (size_t i = 0; i < dimensions.size(); ++i) {
        if (!dimensions[i]) continue;
        const auto input = static_cast<size_t>(std::ranges::find(p_.inputs, a_[id].symbol) - p_.inputs.begin());
        in_inputs[i] = std::min(in_inputs[i], {input, *dimensions[i]});
      }
    }
    std::vector<int> wins(d.axes.size());
    for (const auto& [pair, vote] : votes) {
      const int sign = vote > 0 ? 1 : vote < 0 ? -1 : 0;
      wins[pair.first] += sign;
      wins[pair.second] -= sign;
    }
    std::vector<size_t> order(d.axes.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, {}, [&](size_t i) { return std::pair(-wins[i], in_inputs[i]); });
    return order;
  }

  // If the node reads what is no definition: which of its dimensions has which axis of d, if any has.
  std::vector<std::optional<size_t>> dimensions_of_input(const Definition& d, Id id) {
    const Node n = a_[id];
    if (!is_read(n.op) || p_.tensors[n.symbol].role == Role::defined) return {};
    std::vector<std::optional<size_t>> dimensions(d.axes.size());
    for (size_t i = read_indices(n).size(); i-- > 0;)
      for (size_t k = 0; k < d.axes.size(); ++k)
        if (std::ranges::binary_search(a_[read_indices(n)[i]].free_axes(), d.axes[k].axis)) dimensions[k] = i;
    return dimensions;
  }

  Program reordered() {
    auto in_order = [&](TensorId t, const auto& list) {
      std::vector<typename std::decay_t<decltype(list)>::value_type> result;
      for (size_t i : orders_.at(t)) result.push_back(list[i]);
      return result;
    };
    for (const auto& [t, order] : orders_) p_.tensors[t].shape = in_order(t, p_.tensors[t].shape);
    for (Definition& d : p_.definitions()) {
      if (d.is_call()) continue;
      d.body = rewrite(a_, d.body, [&](Id id) {
        const Node n = a_[id];
        if (!is_read(n.op) || !orders_.contains(n.symbol)) return id;
        const std::vector<Id> indices = in_order(n.symbol, std::vector<Id>(read_indices(n).begin(), read_indices(n).end()));
        return n.op == Op::read ? a_.read(n.symbol, n.type, indices) : a_.read_or(n.symbol, n.type, indices, n.args().back());
      });
      if (orders_.contains(d.target())) d.axes = in_order(d.target(), d.axes);
    }
    return p_;
  }

  Program p_;
  Arena& a_;
  std::map<TensorId, Votes> votes_;
  std::map<TensorId, std::vector<size_t>> orders_;
};

}  // namespace

Program with_settled_layouts(const Program& p) { return Layouts(p).run(); }

}  // namespace xhat
