// Reductions along another axis than the vectors run along, with accumulators in registers: some vectors of a row at a time, for which the loops over
// all terms go on inside.
#include <algorithm>
#include <bit>

#include "runtime/cpu/lowering.h"

namespace xhat::runtime {

// Does a row of sums that lie in memory, each step adding to all of them, wait for what the step before has stored? The more so where the last
// vector is stored under a mask, which no load is forwarded from. In registers a step waits for additions alone, once for each panel.
bool Lowering::waits_for_stores(const SpecMember& m, Id v) const {
  constexpr int64_t kThroughMemory = 10, kAddition = 4, kPanel = 2;  // cycles, and vectors
  if (!constant(v)) return false;
  const int64_t vectors = (axis(v).extent + natural(widest(m)) - 1) / natural(widest(m));
  return (vectors + kPanel - 1) / kPanel * kAddition < std::max(vectors, kThroughMemory);
}

// Is all that the sums read along v read several times in a tile, as by windows? Then it comes from cache in whatever order, and sums in registers
// save a load and a store for each term.
bool Lowering::reads_again(const std::vector<size_t>& group, Id v) const {
  constexpr double kTimes = 4;
  const Arena& a = *spec_.arena;
  for (const SpecMember* m : members_of(group)) {
    double points = 1;
    for (const auto* axes : {&m->left, &m->reduced})
      for (Id x : *axes) points *= static_cast<double>(axis(x).in_tile());
    for (Id id : reachable(a, std::vector<Id>{m->body, m->condition})) {
      if (!is_read(a[id].op) || !a[id].depends_on(v)) continue;
      double places = 1;
      for (Id index : read_indices(a[id])) {
        if (!tensors_read(a, index).empty()) return false;
        places *= spec_.places_in_tile(index);
      }
      if (points < kTimes * places) return false;
    }
  }
  return true;
}

// Not where something dear is the same for a whole row of several panels: each panel would compute it again.
bool Lowering::may_be_in_registers(const std::vector<size_t>& group, Id v) const {
  constexpr int64_t kPanels = 4, kPanel = 2;
  const SpecMember& m = spec_.members[group[0]];
  if (!vectors_ || v == kNone || !constant(v) || axis(v).extent < 2 || in_segments(m, m.left)) return false;
  const bool short_row = axis(v).extent <= kPanels * kPanel * natural(widest(m));
  return short_row || std::ranges::all_of(members_of(group), [&](const SpecMember* x) { return dear_beside_row(x->body, {v}).empty(); });
}

void Lowering::in_registers(const std::vector<size_t>& group, Id v) {
  // As many vectors as additions are under way at once, or as the registers hold of several sums.
  constexpr int64_t kMostVectors = 8, kFewVectors = 2;
  const SpecMember& m = spec_.members[group[0]];
  const int width = std::min<int>(natural(widest(m)), static_cast<int>(std::bit_floor(static_cast<uint64_t>(axis(v).extent))));
  const int64_t most = reads_again(group, v) ? std::max(kFewVectors, kMostVectors / static_cast<int64_t>(group.size())) : kFewVectors;
  const int panel = width * static_cast<int>(std::bit_floor(static_cast<uint64_t>(std::clamp<int64_t>(axis(v).extent / width, 1, most))));
  std::vector<Var> left = func_vars(m);
  const std::vector<Expr> at = exprs(left);
  Func acc(name("acc", m.tensor));
  define(acc, at, identities(group));
  Loops loops = loops_of(m);
  ask_before_row(loops, group, v);
  auto& [r, axes] = loops;
  define(acc, at, steps(group, acc, at, axes, r));
  emit_.given.clear();
  Func result = results_of_sums(group, acc);
  result.bound(vars_.at(v), 0, static_cast<int>(axis(v).extent));  // or blocks would begin before what is needed
  by_panels(result, acc, m, v, panel, r);
  for (const Var& x : left)
    if (x.name() != vars_.at(v).name()) result.never_partition(x);
  for (int i = 0; i < r.dimensions(); ++i) acc.update(0).never_partition(RVar(r[i]));
  leave_all(group, result);
}

}  // namespace xhat::runtime
