#include "cse/normalize/axis_order.h"

#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

#include "expr/core/permuted.h"

namespace xhat {
namespace {

// Per dimension the one axis that moves along it.
using Walk = std::vector<Id>;

std::optional<Walk> walk_of(const Arena& a, std::span<const Id> indices) {
  Walk walk;
  for (Id index : indices) {
    const auto axes = a[index].free_axes();
    if (axes.size() != 1 || std::ranges::find(walk, axes[0]) != walk.end()) return std::nullopt;
    walk.push_back(axes[0]);
  }
  return walk;
}

// One definition's ways through the tensors that it reads and writes.
using Walks = std::vector<std::pair<TensorId, Walk>>;

Walks walks_of(const Arena& a, const Definition& d) {
  Walks walks;
  Walk written;
  for (const AxisRange& r : d.axes) written.push_back(r.axis);
  walks.emplace_back(d.target(), std::move(written));
  for (Id id : reachable(a, d.body))
    if (is_read(a[id].op))
      if (auto walk = walk_of(a, read_indices(a[id]))) walks.emplace_back(a[id].symbol, std::move(*walk));
  return walks;
}

// The dimensions of one way in the order in which another one has their axes, if it has them all.
std::optional<Permutation> in_order_of(const Walk& walk, const Walk& other) {
  std::vector<size_t> places;
  for (Id axis : walk) {
    const auto at = std::ranges::find(other, axis);
    if (at == other.end()) return std::nullopt;
    places.push_back(static_cast<size_t>(at - other.begin()));
  }
  Permutation order = unpermuted(walk.size());
  std::ranges::sort(order, {}, [&](size_t i) { return places[i]; });
  return order;
}

// Has a way two axes or more of another one, and does that walk them in its order?
bool is_followed_by(const Walk& way, const Walk& other) {
  std::vector<size_t> places;
  for (Id axis : other)
    if (const auto at = std::ranges::find(way, axis); at != way.end()) places.push_back(static_cast<size_t>(at - way.begin()));
  return places.size() > 1 && std::ranges::is_sorted(places);
}

class AxisOrder {
 public:
  explicit AxisOrder(const Program& p) : p_(p) {
    for (const Definition& d : p_.definitions()) {
      if (d.is_call()) continue;
      walks_.push_back(walks_of(*p_.arena, d));
      for (const auto& [t, walk] : walks_.back())
        if (auto& in = walked_in_[t]; in.empty() || in.back() != walks_.size() - 1) in.push_back(walks_.size() - 1);
      const auto stays = [&](TensorId t) { return has_tensor(p_.outputs, t) || has_tensor(p_.gradients, t); };
      if (d.axes.size() > 1 && !stays(d.target())) open_.insert(d.target());
    }
  }

  Program run() {
    bool found = true;
    while (found && !open_.empty()) {
      std::map<TensorId, Permutation> round;
      for (TensorId t : open_)
        if (auto order = order_of(t)) round[t] = std::move(*order);
      found = !round.empty();
      for (const auto& [t, order] : round) open_.erase(t);
      orders_.merge(round);
    }
    std::erase_if(orders_, [](const auto& order) { return order.second == unpermuted(order.second.size()); });
    return with_permuted_axes(p_, orders_);
  }

 private:
  // What those say that are no longer open.
  std::optional<Permutation> order_of(TensorId t) const {
    std::optional<Permutation> first;
    bool as_written = false;
    visit(t, [&](const Walk& walk, const Walk& other) {
      auto order = in_order_of(walk, other);
      if (!order) return;
      as_written |= *order == unpermuted(order->size());
      if (!first) first = std::move(order);
    });
    if (!first) return first;
    visit(t, [&](const Walk& walk, const Walk& other) {
      as_written |= is_followed_by(other, walk) && !is_followed_by(other, permuted(walk, *first));
    });
    return as_written ? unpermuted(first->size()) : first;
  }

  // Its ways beside those of tensors whose order is decided.
  template <class F>
  void visit(TensorId t, F&& f) const {
    const auto in = walked_in_.find(t);
    if (in == walked_in_.end()) return;
    for (size_t i : in->second)
      for (const auto& [own, walk] : walks_[i]) {
        if (own != t) continue;
        for (const auto& [other, its] : walks_[i])
          if (!open_.contains(other)) f(walk, permuted(its, orders_, other));
      }
  }

  Program p_;
  std::vector<Walks> walks_;
  std::unordered_map<TensorId, std::vector<size_t>> walked_in_;  // which of them have a tensor
  std::set<TensorId> open_;                                      // whose order is not decided
  std::map<TensorId, Permutation> orders_;
};

}  // namespace

Program axes_in_one_order(const Program& p) { return AxisOrder(p).run(); }

}  // namespace xhat
