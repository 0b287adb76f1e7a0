// What several members of a kernel compute at the same point becomes a temporary of the tile.
#include <algorithm>
#include <map>
#include <set>

#include "cse/auto_inliner.h"
#include "runtime/kernel_spec.h"

namespace xhat::runtime {
namespace {

// Axes in the order in which some read or write of the kernel walks them, so that the temporary is walked alike.
std::vector<Id> layout(const KernelSpec& spec, std::span<const Id> axes) {
  std::vector<Id> order;
  const Arena& a = *spec.arena;
  for (const SpecMember& m : spec.members) {
    std::vector<std::vector<Id>> walks = {m.left};
    for (Id id : reachable(a, m.body))
      if (is_read(a[id].op)) walks.emplace_back(read_indices(a[id]).begin(), read_indices(a[id]).end());
    for (auto& w : walks) {
      bool covers = std::ranges::all_of(axes, [&](Id x) { return std::ranges::find(w, x) != w.end(); });
      if (!covers) continue;
      for (Id x : w)
        if (std::ranges::find(axes, x) != axes.end() && std::ranges::find(order, x) == order.end()) order.push_back(x);
      return order;
    }
  }
  return {axes.begin(), axes.end()};
}

// Sums over one window are summed up in one loop (Lowering::same_domain), which computes once what they share.
bool in_one_loop(const KernelSpec& spec, Id id) {
  const SpecMember* first = nullptr;
  for (const SpecMember& m : spec.members) {
    if (!std::ranges::binary_search(reachable(*spec.arena, m.body), id)) continue;
    if (!first) first = &m;
    if (m.reduced.empty() || m.left != first->left || m.reduced != first->reduced) return false;
  }
  return spec.terms(*first) <= kFewTerms;
}

// The largest expensive node that several members compute, over the most axes; kNone if there is none.
Id find_shared(const KernelSpec& spec) {
  const Arena& a = *spec.arena;
  std::map<Id, int> members;
  for (const SpecMember& m : spec.members)
    for (Id id : reachable(a, m.body)) ++members[id];
  Id best = kNone;
  for (auto [id, count] : members) {
    const Node& n = a[id];
    if (count < 2 || !is_float(n.type) || is_read(n.op) || n.op == Op::constant || n.free_axes().empty()) continue;
    // A vector of the tile, not a scalar of a row: those are hoisted out of loops anyway.
    bool inner = std::ranges::any_of(n.free_axes(), [&](Id x) { return spec.axes.at(x).shared < 0; });
    if (!inner || evaluation_cost_ps(a, id) < kSharedInTile_ps || in_one_loop(spec, id)) continue;
    if (best == kNone || evaluation_cost_ps(a, id) > evaluation_cost_ps(a, best)) best = id;
  }
  return best;
}

}  // namespace

void share_expensive(KernelSpec& spec) {
  Arena& a = *spec.arena;
  for (int round = 0; round < 8; ++round) {
    Id shared = find_shared(spec);
    if (shared == kNone) return;
    const Node n = a[shared];
    SpecTensor t;
    t.original = kInternal;
    t.type = n.type;
    SpecMember made;
    made.left = layout(spec, n.free_axes());
    made.body = shared;
    made.condition = a.boolean(true);
    for (size_t i = 0; i < made.left.size(); ++i) {
      t.shape.push_back(spec.axes.at(made.left[i]).extent);
      t.groups.emplace_back(static_cast<int>(i), static_cast<int>(i));
      t.steps.push_back(1);
    }
    made.tensor = static_cast<uint32_t>(spec.tensors.size());
    spec.tensors.push_back(t);
    Id read = a.read(made.tensor, n.type, made.left);
    size_t first = SIZE_MAX;
    for (size_t i = 0; i < spec.members.size(); ++i) {
      SpecMember& m = spec.members[i];
      auto ids = reachable(a, m.body);
      if (!std::ranges::binary_search(ids, shared)) continue;
      first = std::min(first, i);
      m.body = substitute(a, m.body, {{shared, read}});
    }
    spec.members.insert(spec.members.begin() + static_cast<std::ptrdiff_t>(first), std::move(made));
  }
}

}  // namespace xhat::runtime
