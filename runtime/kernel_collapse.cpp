// Collapsing axes, and the key of a kernel.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "runtime/kernel_spec.h"

namespace xhat::runtime {
namespace {

struct Access {
  uint32_t tensor;
  std::vector<Id> indices;
  bool may_miss;  // a read_or: its indices may lie outside
};

std::vector<Id> roots(const SpecMember& m) {
  std::vector<Id> r = {m.body, m.condition};
  for (auto& [at, index] : m.scatter) r.push_back(index);
  return r;
}

std::vector<Access> accesses(const KernelSpec& spec, const SpecMember& m) {
  std::vector<Access> found;
  found.push_back({m.tensor, m.left, false});
  for (Id id : reachable(*spec.arena, roots(m))) {
    const Node& n = (*spec.arena)[id];
    if (!is_read(n.op)) continue;
    auto indices = read_indices(n);
    found.push_back({n.symbol, {indices.begin(), indices.end()}, n.op == Op::read_or});
  }
  return found;
}

// Axes used otherwise than as a bare index of a read: in arithmetic, conditions, or as a value.
std::set<Id> used_as_values(const KernelSpec& spec) {
  std::set<Id> used;
  const Arena& a = *spec.arena;
  for (const SpecMember& m : spec.members) {
    for (auto& [at, index] : m.scatter) used.insert(m.left[at]);
    for (Id root : roots(m))
      if (a[root].op == Op::axis) used.insert(root);
    for (Id id : reachable(a, roots(m))) {
      const Node& n = a[id];
      auto args = n.op == Op::read ? std::span<const Id>{} : n.args();
      for (Id x : args)
        if (a[x].op == Op::axis) used.insert(x);
    }
  }
  return used;
}

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
  if (s.shared >= 0) {
    if (s.shared + 1 != f.shared) return false;
    // The tile stays a box: some of the slow one only with all of the fast one.
    if (f.kind() != AxisKind::whole && s.kind() != AxisKind::single) return false;
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
  axis.extent *= old.extent;
  if (old.shared >= 0) {
    axis.tile *= old.kind() == AxisKind::single ? 1 : old.tile;
    axis.shared = old.shared;
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
    auto at = std::ranges::find(indices, slow);
    if (at == indices.end()) return indices;
    size_t i = static_cast<size_t>(at - indices.begin());
    *std::next(at) = made;
    indices.erase(at);
    if (narrowed.insert(tensor).second) {
      SpecTensor& t = spec.tensors[tensor];
      t.shape[i] *= t.shape[i + 1];
      t.groups[i].second = t.groups[i + 1].second;
      t.shape.erase(t.shape.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      t.groups.erase(t.groups.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      t.steps.erase(t.steps.begin() + static_cast<std::ptrdiff_t>(i));
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
    for (auto& [at, index] : m.scatter) index = rebuilt(index);
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

void settle_baked(KernelSpec& spec) {
  std::set<Id> values = used_as_values(spec);
  for (auto& [id, axis] : spec.axes) axis.baked = axis.kind() == AxisKind::whole || values.contains(id);
  for (const SpecMember& m : spec.members)
    for (const Access& x : accesses(spec, m))
      for (size_t i = 0; i < x.indices.size(); ++i)
        if (auto it = spec.axes.find(x.indices[i]); it != spec.axes.end())
          if (x.may_miss || spec.tensors[x.tensor].shape[i] != it->second.extent) it->second.baked = true;
}

std::string KernelSpec::key() const {
  // Dimensions that only unbaked axes index are unknown to the code.
  std::map<std::pair<uint32_t, size_t>, bool> known;
  for (const SpecMember& m : members)
    for (const Access& x : accesses(*this, m))
      for (size_t i = 0; i < x.indices.size(); ++i) {
        auto it = axes.find(x.indices[i]);
        known[{x.tensor, i}] |= it == axes.end() || it->second.baked;
      }
  std::string s = streams ? "past the cache;" : "";
  if (vectors > 0) s += fmt::format("v{};", vectors);
  for (Id x : shared) {
    const SpecAxis& axis = axes.at(x);
    // How much a part takes is an argument.
    s += fmt::format("{}:{}/{};", arena->name(x), axis.baked ? axis.extent : -1, static_cast<int>(axis.kind()));
  }
  for (uint32_t t = 0; t < tensors.size(); ++t) {
    const SpecTensor& x = tensors[t];
    s += fmt::format("t{}{}{}[", static_cast<int>(x.type), static_cast<int>(x.use), x.dense ? 'd' : 's');
    for (size_t i = 0; i < x.shape.size(); ++i) s += fmt::format("{},", known[{t, i}] ? x.shape[i] : -1);
    s += "]";
  }
  std::unordered_map<Id, size_t> number;
  for (const SpecMember& m : members) {
    std::vector<Id> all = roots(m);
    all.insert(all.end(), m.left.begin(), m.left.end());
    all.insert(all.end(), m.reduced.begin(), m.reduced.end());
    for (Id id : reachable(*arena, all)) {
      if (!number.emplace(id, number.size()).second) continue;
      const Node& n = (*arena)[id];
      s += fmt::format("\n{}.{}", static_cast<int>(n.op), static_cast<int>(n.type));
      if (n.op == Op::axis) {
        auto it = axes.find(id);
        s += fmt::format("={}:{}", arena->name(id), it != axes.end() && it->second.baked ? it->second.extent : -1);
      } else if (n.op == Op::constant) {
        s += fmt::format("={:x}", n.integer);
      } else if (is_read(n.op)) {
        s += fmt::format("={}", n.symbol);
      }
      for (Id x : n.args()) s += fmt::format(" {}", number.at(x));
    }
    s += fmt::format("\n{}:{}", m.tensor, static_cast<int>(m.op));
    for (Id x : m.left) s += fmt::format(" {}", number.at(x));
    s += " /";
    for (Id x : m.reduced) s += fmt::format(" {}", number.at(x));
    for (auto& [at, index] : m.scatter) s += fmt::format(" @{}={}", at, number.at(index));
    s += fmt::format(" {} {}", number.at(m.condition), number.at(m.body));
  }
  return s;
}

}  // namespace xhat::runtime
