// Which axis of a definition is which class of a kernel: through the tensors that both touch, by bare indices, and by those of groups.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "expr/index/affine_poly.h"
#include "expr/index/simplify_index.h"
#include "fusion/plan/kernel_draft.h"

namespace xhat::fusion {
namespace {

constexpr size_t kMaxAxes = 8;  // of a definition whose axes are taken apart: tensors of kernels have twelve dimensions at most

size_t local_axis(const Shape& s, Id index) {
  for (size_t i = 0; i < s.axes.size(); ++i)
    if (s.axes[i].axis == index) return i;
  return SIZE_MAX;
}

}  // namespace

bool Planner::in_runs(Id read, const Shape& s) const {
  const Arena& a = *p_.arena;
  const auto indices = read_indices(a[read]);
  if (indices.empty()) return false;
  try {
    const affine::Poly last = affine::polynomial_through_divisions(*p_.arena, indices.back(), affine::Poly::atom);
    return std::ranges::any_of(s.axes.begin() + static_cast<std::ptrdiff_t>(s.left), s.axes.end(),
                               [&](const AxisRange& r) { return std::abs(last.coefficient(r.axis)) == 1; });
  } catch (const affine::GaveUp&) {
    return false;
  }
}

Shape::Form Planner::form_of(Id index, const Shape& s) const {
  Arena& a = *p_.arena;
  Shape::Form f{.axis = local_axis(s, index)};
  if (f.axis != SIZE_MAX || a[index].free_axes().empty() || !ties_) return f;
  affine::Poly p;
  try {
    index = simplified_index(a, index, s.axes);
    p = affine::polynomial(a, index, affine::Poly::atom);
  } catch (const affine::GaveUp&) {
    return f;
  }
  auto number = [&](Id e) { return a[e].op == Op::constant ? a[e].integer : 0; };
  if (a[index].op == Op::axis) return {.axis = local_axis(s, index)};
  if (a[index].op == Op::div && number(a[index].arg(1)) > 1) {
    const size_t axis = local_axis(s, a[index].arg(0));
    if (axis != SIZE_MAX && s.extents[axis] % number(a[index].arg(1)) == 0) return {.axis = axis, .divided = number(a[index].arg(1))};
  }
  if (p.terms.size() != 2) return f;
  std::pair<size_t, int64_t> outer{SIZE_MAX, 0}, inner{SIZE_MAX, 0};
  for (const auto& [atoms, times] : p.terms) {
    const size_t axis = atoms.size() == 1 ? local_axis(s, atoms[0]) : SIZE_MAX;
    (times == 1 ? inner : outer) = {axis, times};
  }
  auto known = [&](size_t axis) { return axis != SIZE_MAX && range_is_plain(a, s.axes[axis]); };
  if (known(outer.first) && known(inner.first) && outer.second > 1 && s.extents[inner.first] == outer.second)
    return {.axis = outer.first, .times = outer.second};
  return f;
}

// Finds for each local axis the class it is the same loop as, or -1.
void Planner::map_axes(const Draft& draft, const Shape& s, std::vector<int>& local) const {
  const Arena& a = *p_.arena;
  std::vector<size_t> reads(s.reads.size());
  std::iota(reads.begin(), reads.end(), size_t{0});
  auto tensor = [&](size_t r) { return a[s.reads[r]].symbol; };
  auto produced = [&](size_t r) { return draft.producer.contains(tensor(r)); };
  std::ranges::stable_sort(reads, [&](size_t x, size_t y) {
    if (produced(x) != produced(y)) return produced(x);
    return bytes(tensor(x)) > bytes(tensor(y));
  });
  for (size_t r : reads) {
    auto it = draft.dims.find(tensor(r));
    if (it == draft.dims.end()) continue;
    for (size_t i = 0; i < s.forms[r].size(); ++i) {
      const int c = it->second[i];
      const Shape::Form& f = s.forms[r][i];
      if (c < 0 || !f.bare() || local[f.axis] >= 0) continue;
      if (std::ranges::find(local, c) != local.end()) continue;  // two axes of one definition are two loops
      if (draft.axes[static_cast<size_t>(c)].extent != s.extents[f.axis] || !range_is_plain(a, s.axes[f.axis])) continue;
      local[f.axis] = c;
    }
  }
}

// Local axes that walk groups of a class, or whose groups a class walks:
//   m[n,g] = sum(k in 0..8: x[n,8*g+k])      y[n,c] = x[n,c] - m[n,c/8]           c is tied to the class of g
//   s[n,c] = sum(h: x[n,c,h])                m[n,g] = sum(k in 0..8: s[n,8*g+k])  the class of c is tied to a new one, of g
// Sums over a tied axis, products and scatters are none of this.
void Planner::tie_axes(Draft& draft, const Shape& s, std::vector<int>& local) const {
  const Arena& a = *p_.arena;
  auto other = [](const Shape& x) { return x.product || !x.scatter_targets.empty() || x.left > kMaxAxes; };
  if (!ties_ || other(s) || std::ranges::any_of(draft.members, [&](const Member& m) { return other(shape(m)); })) return;
  auto used = [&](int c) {
    return std::ranges::any_of(local, [&](int l) { return l >= 0 && (draft.walked_by(l) == c || l == c || l == draft.walked_by(c)); });
  };
  auto add = [&](KernelAxis axis, bool shared) {
    draft.axes.push_back(std::move(axis));
    draft.shared.push_back(shared);
    return static_cast<int>(draft.axes.size()) - 1;
  };
  for (size_t r = 0; r < s.reads.size(); ++r) {
    auto it = draft.dims.find(a[s.reads[r]].symbol);
    if (it == draft.dims.end()) continue;
    for (size_t i = 0; i < s.forms[r].size(); ++i) {
      const int c = it->second[i];
      const Shape::Form& f = s.forms[r][i];
      if (c < 0 || f.axis >= s.left || f.bare() || local[f.axis] >= 0 || !range_is_plain(a, s.axes[f.axis])) continue;
      const KernelAxis axis = draft.axes[static_cast<size_t>(c)];
      const int64_t n = s.extents[f.axis];
      auto is_class = [&](const KernelAxis& x) { return x.of == c && x.each == f.divided && x.extent == n; };
      if (f.divided > 1 && axis.of < 0 && n == axis.extent * f.divided && !used(c)) {
        auto known = std::ranges::find_if(draft.axes, is_class);
        KernelAxis tied{.name = a.name(s.axes[f.axis].axis), .extent = n, .tile = n, .of = c, .each = f.divided};
        local[f.axis] = known != draft.axes.end() ? static_cast<int>(known - draft.axes.begin()) : add(std::move(tied), false);
      } else if (f.times > 1 && axis.of >= 0 && axis.each == f.times && axis.extent == n * f.times && !used(axis.of)) {
        local[f.axis] = axis.of;
      } else if (f.times > 1 && axis.of < 0 && axis.extent == n * f.times && !used(c)) {
        auto sums = [&](const Member& m) { return std::ranges::find(m.reduced, c) != m.reduced.end(); };
        const bool summed = std::ranges::any_of(draft.members, sums);
        const bool groups = std::ranges::any_of(draft.axes, [&](const KernelAxis& x) { return x.of == c; });
        if (summed || groups) continue;
        local[f.axis] = add({a.name(s.axes[f.axis].axis), n, n}, draft.shared[static_cast<size_t>(c)]);
        draft.axes[static_cast<size_t>(c)].of = local[f.axis];
        draft.axes[static_cast<size_t>(c)].each = f.times;
        draft.shared[static_cast<size_t>(c)] = false;
      }
    }
  }
}

}  // namespace xhat::fusion
