// Two kernels as one, once a later definition shows that they go together.
//
//     s[n] = sum(d: x[n,d])       s and r have nothing in common until z reads both at n: then the two loops over n are
//     r[n] = sum(d: y[n,d])       the same, and what z takes from either is the tile that it is at.
//     z[n] = s[n] + r[n]
//
// Classes of axes are found to be the same through the tensors that members of both kernels touch. What is shared then is
// what is shared in both, unless a member needs more of the other kernel's than its own tile. Products keep all that they
// had: in fewer tiles of other shapes mlp2's backward took 14 ms instead of 10. Those of a batch that is large enough need not.
#include <algorithm>
#include <functional>

#include "fusion/plan/kernel_draft.h"

namespace xhat::fusion {

// Per class of `from`, the class of `into` that is the same loop, or -1. Only shared ones: of the others nothing is gained.
std::vector<int> Planner::same_loops(const Draft& into, const Draft& from) const {
  std::vector<int> same(from.axes.size(), -1);
  auto identify = [&](TensorId t) {
    auto x = into.dims.find(t), y = from.dims.find(t);
    if (x == into.dims.end() || y == from.dims.end()) return;
    for (size_t i = 0; i < x->second.size(); ++i) {
      const int c = x->second[i], d = y->second[i];
      if (c < 0 || d < 0 || same[static_cast<size_t>(d)] >= 0 || std::ranges::find(same, c) != same.end()) continue;
      const auto cc = static_cast<size_t>(c), dd = static_cast<size_t>(d);
      if (into.shared[cc] && from.shared[dd] && into.axes[cc].extent == from.axes[dd].extent) same[dd] = c;
    }
  };
  std::vector<TensorId> tensors;
  for (const auto& [t, classes] : from.dims) tensors.push_back(t);
  auto made = [&](TensorId t) { return into.producer.contains(t) || from.producer.contains(t); };
  std::ranges::stable_sort(tensors, [&](TensorId x, TensorId y) {
    return made(x) != made(y) ? made(x) : bytes(x) > bytes(y);
  });
  for (TensorId t : tensors) identify(t);
  return same;
}

std::optional<Draft> Planner::merged(const Draft& into, const Draft& from, std::string* why) const {
  Draft both = into;
  std::vector<int> renumbered = same_loops(into, from);
  for (size_t c = 0; c < into.axes.size(); ++c)
    if (both.shared[c] && std::ranges::find(renumbered, static_cast<int>(c)) == renumbered.end()) {
      both.shared[c] = false;
      *why = "not all run over " + into.axes[c].name;
    }
  for (size_t c = 0; c < from.axes.size(); ++c) {
    if (renumbered[c] >= 0) continue;
    renumbered[c] = static_cast<int>(both.axes.size());
    both.axes.push_back(from.axes[c]);
    both.shared.push_back(false);
  }
  for (size_t c = into.axes.size(); c < both.axes.size(); ++c)
    if (int& of = both.axes[c].of; of >= 0) of = renumbered[static_cast<size_t>(of)];
  auto renumber = [&](std::vector<int>& classes) {
    for (int& c : classes)
      if (c >= 0) c = renumbered[static_cast<size_t>(c)];
  };
  for (Member m : from.members) {
    renumber(m.left);
    renumber(m.reduced);
    both.members.push_back(std::move(m));
  }
  for (auto [t, classes] : from.dims) {
    renumber(classes);
    auto& known = both.dims.try_emplace(t, classes).first->second;
    for (size_t i = 0; i < known.size(); ++i)
      if (known[i] < 0) known[i] = classes[i];
  }
  std::ranges::sort(both.members, {}, &Member::definition);  // definitions are in order
  for (size_t i = 0; i < both.members.size(); ++i) both.producer[p_.forward.definitions[both.members[i].definition].target()] = i;
  for (const Member& m : both.members) {
    both.dims[p_.forward.definitions[m.definition].target()] = m.left;
    unshare_what_must_be_complete(both, m, why);
  }
  auto loses = [&](const Draft& part, auto&& class_in_both) {
    return std::ranges::any_of(part.members, [&](const Member& m) {
      const auto& product = shape(m).product;
      if (!product) return false;
      int64_t batch = 1;
      for (size_t i = 0; i < m.left.size(); ++i)
        if (i != product->rows && i != product->columns && both.shared[static_cast<size_t>(class_in_both(m.left[i]))])
          batch *= part.axes[static_cast<size_t>(m.left[i])].extent;
      return batch < machine_.least_tiles && std::ranges::any_of(m.left, [&](int c) {
        return part.shared[static_cast<size_t>(c)] && !both.shared[static_cast<size_t>(class_in_both(c))];
      });
    });
  };
  if (small_ || (!loses(into, std::identity()) && !loses(from, [&](int c) { return renumbered[static_cast<size_t>(c)]; }))) return both;
  *why = "a product would have fewer tiles";
  return std::nullopt;
}

// May draft j run where k does, or k where j does? Where the two as one would stand.
std::optional<size_t> Planner::place_of_both(const std::vector<Draft>& drafts, size_t j, size_t k) const {
  auto reads_from = [&](const Draft& reader, const Draft& maker) {
    return std::ranges::any_of(reader.members, [&](const Member& m) {
      return std::ranges::any_of(shape(m).reads, [&](Id r) { return maker.producer.contains((*p_.arena)[r].symbol); });
    });
  };
  bool later = true, earlier = true;
  for (size_t between = j + 1; between < k; ++between) {
    later &= !reads_from(drafts[between], drafts[j]);
    earlier &= !reads_from(drafts[k], drafts[between]);
  }
  if (later) return k;
  return earlier ? std::optional(j) : std::nullopt;
}

}  // namespace xhat::fusion
