// What several members of a kernel compute at the same point becomes a temporary of the tile.
#include <algorithm>
#include <map>
#include <set>

#include "cse/normalize/auto_inliner.h"
#include "expr/core/machine_model.h"
#include "expr/index/data_ends.h"
#include "fusion/plan/vector_price.h"
#include "runtime/kernel/kernel_spec.h"

namespace xhat::runtime {
namespace {

constexpr int64_t kLanes = 16;  // of the longest vectors
constexpr int kMostTemporaries = 8;

// Axes in the order in which some read or write of the kernel walks them, so that the temporary is walked alike. Where none walks them all, the
// last is one that fills its vectors.
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
  order.assign(axes.begin(), axes.end());
  auto filled = [&](Id x) { return lanes_filled(spec.axes.at(x).in_tile(), kLanes); };
  const auto longest = std::ranges::max_element(order.rbegin(), order.rend(), {}, filled).base() - 1;
  std::rotate(longest, longest + 1, order.end());
  return order;
}

// Sums over one window are summed up in one loop (Lowering::same_domain), which computes once what they share: where none of them waits for another,
// as the sum of exponentials does for the maximum.
bool in_one_loop(const KernelSpec& spec, Id id) {
  const Arena& a = *spec.arena;
  const SpecMember* first = nullptr;
  std::set<TensorId> behind;  // what is made of the sums so far
  for (const SpecMember& m : spec.members) {
    const auto of_sums = [&](TensorId t) { return behind.contains(t); };
    const bool waits = std::ranges::any_of(tensors_read(a, m.body), of_sums) || std::ranges::any_of(tensors_read(a, m.condition), of_sums);
    const bool computes = std::ranges::binary_search(reachable(a, m.body), id);
    if (computes && !first) first = &m;
    if (computes && (waits || m.reduced.empty() || m.left != first->left || m.reduced != first->reduced)) return false;
    if (computes || waits) behind.insert(m.tensor);
  }
  return spec.terms(*first) <= kFewTerms;
}

// A member computes it for pairs of a place and a segment that has it, o[r] <= t && t < o[r+1]: of all pairs, which a temporary would have, few.
bool of_segments(KernelSpec& spec, Id id) {
  Arena& a = *spec.arena;
  const std::vector<Id> axes(a[id].free_axes().begin(), a[id].free_axes().end());
  return std::ranges::any_of(spec.members, [&](const SpecMember& m) {
    return !is_true(a, m.condition) && std::ranges::binary_search(reachable(a, m.body), id) &&
           std::ranges::any_of(axes, [&](Id x) { return in_segments(a, m.condition, x, axes); });
  });
}

// It varies with every loop of a member that computes it.
bool fills_a_loop(const KernelSpec& spec, Id id) {
  auto varies = [&](Id x) { return spec.axes.at(x).in_tile() == 1 || (*spec.arena)[id].depends_on(x); };
  return std::ranges::any_of(spec.members, [&](const SpecMember& m) {
    return std::ranges::binary_search(reachable(*spec.arena, m.body), id) && std::ranges::all_of(m.left, varies) &&
           std::ranges::all_of(m.reduced, varies);
  });
}

// The member whose elements are this node's values, kept as they are and near enough to be read again: results that go past the
// cache are not.
size_t maker_of(const KernelSpec& spec, Id id) {
  const Arena& a = *spec.arena;
  auto makes = [&](const SpecMember& m) {
    return !spec.streams && m.body == id && m.op == Op::constant && m.scatter.empty() && is_true(a, m.condition) &&
           spec.tensors[m.tensor].type == a[id].type && m.left.size() == a[id].free_axes().size();
  };
  return static_cast<size_t>(std::ranges::find_if(spec.members, makes) - spec.members.begin());
}

// What it costs at each of its points, without what is the same along the axes that all who compute it sum up, which is computed before these
// loops, and without what their conditions compute anyway. (Sharing `if 0 < x[n,k] then dy[n]/ties[n] else 0` over n and k would keep a tensor
// for the sake of a comparison.)
int64_t cost_in_sums_ps(const KernelSpec& spec, Id id) {
  const Arena& a = *spec.arena;
  std::vector<Id> all(a[id].free_axes().begin(), a[id].free_axes().end());
  for (const SpecMember& m : spec.members)
    if (std::ranges::binary_search(reachable(a, m.body), id))
      std::erase_if(all, [&](Id x) { return std::ranges::find(m.reduced, x) == m.reduced.end(); });
  if (all.empty()) return evaluation_cost_ps(a, id);
  auto in_conditions = [&](Id x) {
    return std::ranges::all_of(spec.members, [&](const SpecMember& m) {
      return !std::ranges::binary_search(reachable(a, m.body), id) || std::ranges::binary_search(reachable(a, m.condition), x);
    });
  };
  int64_t cost = 0;
  std::set<Id> seen;
  std::vector<Id> stack = {id};
  while (!stack.empty()) {
    const Id at = stack.back();
    stack.pop_back();
    const Node& n = a[at];
    const bool same = std::ranges::none_of(all, [&](Id x) { return n.depends_on(x); });
    if (same || in_conditions(at) || !seen.insert(at).second) continue;
    cost += info(n.op).cost_ps;
    if (!is_read(n.op)) stack.insert(stack.end(), n.args().begin(), n.args().end());
  }
  return cost;
}

// Of the expensive nodes that several members compute, that which saves most: an exponential that twelve of them need before what three
// make of it. kNone if there is none.
Id find_shared(KernelSpec& spec) {
  const Arena& a = *spec.arena;
  std::map<Id, int> members;
  for (const SpecMember& m : spec.members)
    for (Id id : reachable(a, m.body)) ++members[id];
  Id best = kNone;
  int64_t most = 0;
  for (auto [id, count] : members) {
    const Node& n = a[id];
    if (count < 2 || !is_float(n.type) || is_read(n.op) || n.op == Op::constant || n.free_axes().empty()) continue;
    // A vector of the tile, not a scalar of a row: those are hoisted out of loops anyway.
    bool inner = std::ranges::any_of(n.free_axes(), [&](Id x) { return spec.axes.at(x).shared < 0; }) || fills_a_loop(spec, id);
    const bool made = maker_of(spec, id) < spec.members.size();
    if (!inner || !costs_at_least(a, id, made ? kReadAgain_ps : kSharedInTile_ps) || in_one_loop(spec, id)) continue;
    if (!made && (cost_in_sums_ps(spec, id) < kSharedInTile_ps || of_segments(spec, id))) continue;
    const int64_t saved = (count - 1) * evaluation_cost_ps(a, id);
    if (best == kNone || saved > most || (saved == most && evaluation_cost_ps(a, id) > evaluation_cost_ps(a, best))) best = id, most = saved;
  }
  return best;
}

// A temporary of the tile.
SpecMember temporary(KernelSpec& spec, Id id) {
  Arena& a = *spec.arena;
  SpecTensor t;
  t.original = kInternal;
  t.type = a[id].type;
  SpecMember made;
  made.left = layout(spec, a[id].free_axes());
  made.body = id;
  made.condition = a.boolean(true);
  for (size_t i = 0; i < made.left.size(); ++i) {
    t.shape.push_back(spec.axes.at(made.left[i]).extent);
    t.groups.emplace_back(static_cast<int>(i), static_cast<int>(i));
    t.steps.push_back(1);
  }
  made.tensor = static_cast<uint32_t>(spec.tensors.size());
  spec.tensors.push_back(t);
  return made;
}

}  // namespace

void share_expensive(KernelSpec& spec) {
  Arena& a = *spec.arena;
  for (int round = 0; round < kMostTemporaries; ++round) {
    Id shared = find_shared(spec);
    if (shared == kNone) return;
    auto computes = [&](const SpecMember& m) { return std::ranges::binary_search(reachable(a, m.body), shared); };
    const size_t maker = maker_of(spec, shared);
    size_t first = static_cast<size_t>(std::ranges::find_if(spec.members, computes) - spec.members.begin());
    if (maker < spec.members.size()) {  // others may read it already, so it moves only forward
      std::rotate(spec.members.begin() + static_cast<std::ptrdiff_t>(first), spec.members.begin() + static_cast<std::ptrdiff_t>(maker),
                  spec.members.begin() + static_cast<std::ptrdiff_t>(maker) + 1);
    } else {
      SpecMember made = temporary(spec, shared);
      spec.members.insert(spec.members.begin() + static_cast<std::ptrdiff_t>(first), std::move(made));
    }
    const SpecMember& made = spec.members[first];
    Id read = a.read(made.tensor, a[shared].type, made.left);
    for (size_t i = first + 1; i < spec.members.size(); ++i)
      if (SpecMember& m = spec.members[i]; computes(m)) m.body = substitute(a, m.body, {{shared, read}});
  }
}

}  // namespace xhat::runtime
