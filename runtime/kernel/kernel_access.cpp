#include "runtime/kernel/kernel_access.h"

#include <algorithm>

#include "expr/index/affine_poly.h"

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

std::optional<int64_t> step_along(Arena& a, Id index, Id axis) {
  try {
    affine::Poly p = affine::polynomial_through_divisions(a, index, affine::Poly::atom), rest = p.without(axis);
    bool elsewhere = std::ranges::any_of(rest.terms, [&](const auto& term) {
      return std::ranges::any_of(term.first, [&](Id x) { return a[x].depends_on(axis); });
    });
    if (!elsewhere) return p.coefficient(axis);
  } catch (const affine::GaveUp&) {
  }
  return {};
}

}  // namespace xhat::runtime
