#include "runtime/kernel/kernel_access.h"

#include <algorithm>

#include "expr/index/linear.h"

namespace xhat::runtime {

std::vector<Id> roots(const SpecMember& m) {
  std::vector<Id> r = {m.body, m.condition};
  for (auto& [axis, index] : m.scatter) r.push_back(index);
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

std::map<std::pair<uint32_t, size_t>, std::set<Id>> indices_of(const KernelSpec& spec) {
  std::map<std::pair<uint32_t, size_t>, std::set<Id>> found;
  for (const SpecMember& m : spec.members)
    for (const Access& x : accesses(spec, m))
      for (size_t i = 0; i < x.indices.size(); ++i) found[{x.tensor, i}].insert(x.indices[i]);
  return found;
}

std::set<Id> used_as_values(const KernelSpec& spec) {
  std::set<Id> used;
  const Arena& a = *spec.arena;
  for (const SpecMember& m : spec.members) {
    for (auto& [axis, index] : m.scatter) used.insert(axis);
    for (Id root : roots(m))
      if (a[root].op == Op::axis) used.insert(root);
    for (Id id : reachable(a, roots(m))) {
      const Node& n = a[id];
      std::span<const Id> args = n.args();
      if (is_read(n.op)) args = args.subspan(read_indices(n).size());
      for (Id x : args)
        if (a[x].op == Op::axis) used.insert(x);
    }
  }
  return used;
}

bool writes_nothing(const KernelSpec& spec) {
  return std::ranges::none_of(
      spec.tensors, [](const SpecTensor& t) { return t.use == SpecTensor::Use::result || t.use == SpecTensor::Use::partial; });
}

std::optional<Moved> moved_by_data(const KernelSpec& spec, Id index) {
  const Arena& a = *spec.arena;
  if (tensors_read(a, index).empty()) return {};
  const Linear all = linear(*spec.arena, index);
  Moved m;
  m.constant = m.least = m.most = all.constant;
  for (const auto& [node, scale] : all.terms) {
    if (a[node].op != Op::axis) {
      m.rest.emplace_back(node, scale);
      continue;
    }
    if (!spec.axes.at(node).static_extent) return {};
    m.by_axes.emplace_back(node, scale);
    const auto [low, high] = spec.interval(node);
    m.least += scale * (scale > 0 ? low : high);
    m.most += scale * (scale > 0 ? high : low);
  }
  auto depends = [&](const auto& term) { return std::ranges::any_of(m.by_axes, [&](const auto& x) { return a[term.first].depends_on(x.first); }); };
  if (m.by_axes.empty() || std::ranges::any_of(m.rest, depends)) return {};
  return m;
}

std::set<std::pair<Id, size_t>> moved_reads(const KernelSpec& spec) {
  const Arena& a = *spec.arena;
  std::set<std::pair<Id, size_t>> found, chosen;
  if (spec.any_size()) return {};
  for (const SpecMember& m : spec.members) {
    const std::vector<Id> all = reachable(a, roots(m));
    for (Id id : all) {
      const Node& n = a[id];
      if (n.op != Op::read) continue;
      for (size_t d = 0; d < read_indices(n).size(); ++d) {
        const auto moved = moved_by_data(spec, read_indices(n)[d]);
        if (!moved) continue;
        auto depends = [&](Id x) { return std::ranges::any_of(moved->by_axes, [&](const auto& axis) { return a[x].depends_on(axis.first); }); };
        // What may leave it out, by where these axes are.
        auto leaves_out = [&](Id by) {
          const Node& c = a[by];
          const bool chooses = c.op == Op::select || c.op == Op::land || c.op == Op::lor || c.op == Op::read_or;
          return chooses && depends(by) && by != id && std::ranges::count(reachable(a, std::vector<Id>{by}), id) > 0 &&
                 (c.op != Op::select || depends(c.arg(0)));
        };
        const bool everywhere = !depends(m.condition) && std::ranges::none_of(m.scatter, [&](const auto& s) { return depends(s.second); }) &&
                                std::ranges::none_of(all, leaves_out);
        (everywhere ? found : chosen).emplace(id, d);
      }
    }
  }
  for (const auto& at : chosen) found.erase(at);
  return found;
}

}  // namespace xhat::runtime
