// Collapsing axes.
#include <algorithm>
#include <set>

#include "expr/index/size_limits.h"
#include "runtime/kernel/kernel_access.h"

namespace xhat::runtime {
namespace {

bool neighbours(const std::vector<Id>& list, Id slow, Id fast) {
  auto s = std::ranges::find(list, slow), f = std::ranges::find(list, fast);
  if (s == list.end() || f == list.end()) return s == f;  // neither is fine, one alone is not
  return s + 1 == f;
}

bool may_collapse(const KernelSpec& spec, Id slow, Id fast, const std::set<Id>& values) {
  if (slow == fast || values.contains(slow) || values.contains(fast)) return false;
  const SpecAxis& s = spec.axes.at(slow);
  const SpecAxis& f = spec.axes.at(fast);
  if ((s.shared < 0) != (f.shared < 0)) return false;
  if (f.extent > 0 && s.extent > kMaxElements / f.extent) return false;  // its steps are counted with 32 bits
  if (s.shared >= 0) {
    if (s.shared + 1 != f.shared || s.sequential != f.sequential) return false;
    // The tile stays a box: some of the slow one only with all of the fast one.
    if (f.kind() != AxisKind::untiled && s.kind() != AxisKind::point) return false;
  }
  std::map<std::pair<uint32_t, size_t>, bool> merged;  // tensor dimension -> starts a collapsed pair
  for (const SpecMember& m : spec.members) {
    if (!neighbours(m.left, slow, fast) || !neighbours(m.reduced, slow, fast)) return false;
    for (const Access& x : accesses(spec, m)) {
      const SpecTensor& t = spec.tensors[x.tensor];
      for (size_t i = 0; i < x.indices.size(); ++i) {
        bool pair = x.indices[i] == slow && i + 1 < x.indices.size() && x.indices[i + 1] == fast;
        if (x.indices[i] == slow && !pair) return false;
        if (x.indices[i] == fast && (i == 0 || x.indices[i - 1] != slow)) return false;
        auto [it, fresh] = merged.emplace(std::pair(x.tensor, i), pair);
        if (!fresh && it->second != pair) return false;
        if (!pair) continue;
        if (x.may_miss || t.shape[i] != s.extent || t.shape[i + 1] != f.extent || !t.dense) return false;
      }
    }
  }
  return true;
}

void collapse_pair(KernelSpec& spec, Id slow, Id fast) {
  Arena& a = *spec.arena;
  Id made = a.axis(a.name(slow) + a.name(fast));
  SpecAxis axis = spec.axes.at(fast);
  const SpecAxis old = spec.axes.at(slow);
  if (!old.static_extent) axis.multiple = axis.extent * old.multiple;
  axis.extent *= old.extent;
  axis.fixed = axis.fixed && old.fixed;
  axis.static_extent = axis.static_extent && old.static_extent;
  axis.open = axis.open || old.open;
  axis.sized = axis.sized || old.sized;
  if (old.shared >= 0) {
    axis.tile *= old.kind() == AxisKind::point ? 1 : old.tile;
    axis.shared = old.shared;
    axis.planned.insert(axis.planned.begin(), old.planned.begin(), old.planned.end());
    axis.divisor *= old.divisor;
    spec.shared.erase(std::ranges::find(spec.shared, slow));
    *std::ranges::find(spec.shared, fast) = made;
  } else {
    axis.tile = axis.extent;
  }
  spec.axes.erase(slow);
  spec.axes.erase(fast);
  spec.axes[made] = axis;
  for (size_t i = 0; i < spec.shared.size(); ++i) spec.axes.at(spec.shared[i]).shared = static_cast<int>(i);

  std::set<uint32_t> narrowed;
  auto drop = [&](uint32_t tensor, std::vector<Id> indices) {
    const bool first = std::ranges::find(indices, slow) != indices.end() && narrowed.insert(tensor).second;
    SpecTensor& t = spec.tensors[tensor];
    for (size_t i = indices.size(); i-- > 0;) {  // a diagonal has the pair at several places: x[i,j,i,j]
      if (indices[i] != slow) continue;
      const auto at = static_cast<std::ptrdiff_t>(i);
      indices[i + 1] = made;
      indices.erase(indices.begin() + at);
      if (!first) continue;
      t.shape[i] *= t.shape[i + 1];
      t.groups[i].second = t.groups[i + 1].second;
      t.shape.erase(t.shape.begin() + at + 1);
      t.groups.erase(t.groups.begin() + at + 1);
      t.steps.erase(t.steps.begin() + at);
    }
    return indices;
  };
  std::unordered_map<Id, Id> done;
  auto rebuilt = [&](Id root) {
    for (Id id : reachable(a, root)) {
      if (done.contains(id)) continue;
      const Node& n = a[id];
      std::vector<Id> args;
      for (Id x : n.args()) args.push_back(done.at(x));
      // Bare indices are axes, which are not rebuilt, so the old ones still stand in args.
      if (n.op == Op::read) args = drop(n.symbol, std::move(args));
      done[id] = n.op == Op::read ? a.read(n.symbol, n.type, args) : n.arg_count ? a.with_args(id, args) : id;
    }
    return done.at(root);
  };
  for (SpecMember& m : spec.members) {
    m.left = drop(m.tensor, m.left);
    if (auto at = std::ranges::find(m.reduced, slow); at != m.reduced.end()) {
      *std::next(at) = made;
      m.reduced.erase(at);
    }
    m.body = rebuilt(m.body);
    m.condition = rebuilt(m.condition);
    for (auto& [target, index] : m.scatter) index = rebuilt(index);
  }
}

}  // namespace

void collapse(KernelSpec& spec) {
  for (bool again = true; again;) {
    again = false;
    std::set<Id> values = used_as_values(spec);
    std::vector<std::pair<Id, Id>> candidates;
    for (const SpecMember& m : spec.members)
      for (const Access& x : accesses(spec, m))
        for (size_t i = 0; i + 1 < x.indices.size(); ++i)
          if (spec.axes.contains(x.indices[i]) && spec.axes.contains(x.indices[i + 1]))
            candidates.emplace_back(x.indices[i], x.indices[i + 1]);
    for (auto [slow, fast] : candidates) {
      if (!may_collapse(spec, slow, fast, values)) continue;
      collapse_pair(spec, slow, fast);
      again = true;
      break;
    }
  }
}

}  // namespace xhat::runtime
