// A draft becomes a kernel: which axis its tiles go along, its name, its results, and the bytes that it moves.
#include <algorithm>
#include <functional>
#include <optional>

#include "fusion/plan/kernel_draft.h"

namespace xhat::fusion {

// The draft as a kernel: its tiles and what it moves. Tiles along one axis may leave many partial results where those along another one leave
// few: of g[m] = sum(n: k[n,m]) a row for each tile of n, of h[n] = sum(m: k[n,m]) one for each of m.
Kernel Planner::finished(const Draft& draft, const KernelChoice& choice) const {
  constexpr double kFewer = 0.75;  // of the bytes moved
  Kernel kernel = tiled_from(draft, {}, std::nullopt);
  std::optional<int> first;
  // Sums along memory had better not be cut into short ones.
  auto cuts_rows = [&](int c) {
    return std::ranges::any_of(draft.members, [&](const Member& m) {
      const Shape& s = shape(m);
      const bool rows = s.is_reduction && std::ranges::all_of(s.in_runs, std::identity());
      return rows && std::ranges::any_of(m.reduced, [&](int r) { return draft.walked_by(r) == c; });
    });
  };
  if (draft.members.size() > 1 && kernel.combines_partials && kernel.sequential == 0)
    for (const std::vector<int> others(kernel.shared.begin() + 1, kernel.shared.end()); int c : others) {
      if (cuts_rows(c)) continue;
      Kernel other = tiled_from(draft, {}, c);
      const bool fewer = static_cast<double>(other.bytes_moved) < kFewer * static_cast<double>(kernel.bytes_moved);
      if (!fewer || other.bytes_priced() >= kernel.bytes_priced()) continue;
      kernel = std::move(other);
      first = c;
    }
  return choice == KernelChoice{} ? kernel : tiled_from(draft, choice, first);
}

// first: the axis that varies the slowest, if it is not the one that does in the largest tensors.
Kernel Planner::tiled_from(const Draft& draft, const KernelChoice& choice, std::optional<int> first) const {
  Kernel kernel;
  kernel.choice = choice;
  kernel.members = draft.members;
  order_and_tile(draft, kernel, first);
  std::string all, results;  // names are for people: the results say what a kernel is for
  for (const Member& m : kernel.members) {
    TensorId t = p_.forward.definitions[m.definition].target();
    const std::string& name = p_.tensors[t].name;
    all += (all.empty() ? "" : "_") + name;
    if (!leaves(draft, t)) continue;
    kernel.results.push_back(t);
    results += (results.empty() ? "" : "_") + name;
  }
  kernel.name = results.empty() ? all : results;
  count_bytes(as_tiled(draft, kernel), kernel);
  if (alone(kernel.members[0])) {  // not in our tiles
    kernel.bytes_moved = kernel.bytes_unavoidable;
    kernel.bytes_packed = kernel.bytes_waited = kernel.bytes_in_vain = 0;
    kernel.combines_partials = false;
  }
  return kernel;
}

// One thread shares the places of a scatter with nobody: in one tile it need not ask of any term whether it falls into another. (Results do not
// depend on the tiles, so those that leave partial results keep them.)
void Planner::scatter_at_once(const Draft& draft, Kernel& kernel) const {
  const bool scatters = std::ranges::any_of(kernel.members, [&](const Member& m) { return !shape(m).scatter_targets.empty(); });
  if (!scatters || kernel.combines_partials || kernel.choice != KernelChoice{}) return;
  for (int c : kernel.shared) {
    KernelAxis& axis = kernel.axes[static_cast<size_t>(c)];
    axis.rule = {};
    axis.tile = std::max<int64_t>(1, axis.extent);
  }
  for (KernelAxis& axis : kernel.axes)
    if (axis.of >= 0) axis.tile = axis.each * kernel.axes[static_cast<size_t>(axis.of)].tile;
  count_bytes(as_tiled(draft, kernel), kernel);
}

}  // namespace xhat::fusion
