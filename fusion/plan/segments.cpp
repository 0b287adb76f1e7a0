// Segments between offsets in the plan: sum(t if o[s] <= t && t < o[s+1]: x[t,c]), and its gradient, which gives each place t what
// its segment has.
//
// Kernels go over places and over segments, not over pairs of both: where data bound the places, loops begin and end there
// (runtime/cpu/lower_reduce.cpp). But of results at places, grad_x[t,c], every tile asks all segments whether they have places in it.
#include <algorithm>

#include "expr/core/conditions.h"
#include "expr/index/data_ends.h"
#include "fusion/plan/kernel_draft.h"

namespace xhat::fusion {
namespace {

// To ask a segment which places of a tile it has, in bytes that could be moved meanwhile.
constexpr int64_t kAskedBytes = 32;
// So are terms of a scatter, in vectors: those that fall into a tile are listed first.
constexpr int64_t kLookedAtBytes = 8;

}  // namespace

void Planner::find_segments(Shape& s, Id condition) const {
  Arena& a = *p_.arena;
  const std::vector<Id> parts = conjuncts(a, condition);
  for (size_t i = 0; i < s.axes.size(); ++i) {
    const Id places = s.axes[i].axis;
    std::vector<size_t> by;
    size_t ends = 0;
    for (Id part : parts) {
      if (!a[part].depends_on(places) || !is_end_by_data(a, part, places)) continue;
      ++ends;
      for (size_t j = 0; j < s.axes.size(); ++j)
        if (j != i && a[part].depends_on(s.axes[j].axis) && std::ranges::find(by, j) == by.end()) by.push_back(j);
    }
    // Terms by results, or results by terms.
    const bool tied = std::ranges::any_of(by, [&](size_t j) { return (j < s.left) != (i < s.left); });
    if (ends > 1 && tied) s.segments.push_back({i, std::move(by)});
  }
}

// Of all pairs of a place and a segment, those that are looked at: each place is in one segment or so.
double Planner::share_of_pairs(const Shape& s) const {
  double share = 1;
  for (const Shape::Segments& of : s.segments) {
    double segments = 1;
    for (size_t i : of.by) segments *= static_cast<double>(std::max<int64_t>(1, s.extents[i]));
    const double places = static_cast<double>(std::max<int64_t>(1, s.extents[of.places]));
    share *= (places + segments) / (places * segments);
  }
  return std::min(1.0, share);
}

// Segments that a tile asks which of its results they have.
int64_t Planner::asked_in_tile(const Draft& d, const Member& m) const {
  const Shape& s = shape(m);
  int64_t all = 0;
  for (const Shape::Segments& of : s.segments) {
    if (of.places >= s.left) continue;
    int64_t asked = 1;
    for (size_t i : of.by) asked *= in_tile(d, i < s.left ? m.left[i] : m.reduced[i - s.left], true);
    all += asked;
  }
  return all;
}

// In bytes that could be moved meanwhile: each tile looks at all terms of a scatter, of which a few fall into it. A kernel without partial
// results has no more such tiles than there are threads (scatter_at_once).
int64_t Planner::looked_at_in_vain(const Draft& d, const Kernel& k, const Member& m, int64_t tiles) const {
  const Shape& s = shape(m);
  if (s.scatter_targets.empty() || !k.combines_partials) return 0;
  int64_t all = 1, looked_at = tiles;
  for (size_t i = s.left; i < s.axes.size(); ++i) {
    all *= s.extents[i];
    looked_at *= in_tile(d, m.reduced[i - s.left], true);
  }
  return std::max<int64_t>(0, looked_at - all) * kLookedAtBytes;
}

// In bytes that could be moved meanwhile.
int64_t Planner::asked_bytes(const Draft& d) const {
  int64_t asked = 0;
  for (const Member& m : d.members) asked += asked_in_tile(d, m);
  return asked * kAskedBytes;
}

}  // namespace xhat::fusion
