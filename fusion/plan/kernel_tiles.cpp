// A draft becomes a kernel: which axis its tiles go along, its name, its results, and the bytes that it moves.
#include <algorithm>
#include <functional>
#include <optional>
#include <set>

#include "fusion/plan/kernel_draft.h"

namespace xhat::fusion {

// The draft as a kernel: its tiles and what it moves. Tiles along one axis may leave many partial results where those along another one leave
// few: of g[m] = sum(n: k[n,m]) a row for each tile of n, of h[n] = sum(m: k[n,m]) one for each of m.
Kernel Planner::finished(const Draft& draft, const KernelChoice& choice) const {
  constexpr double kFewer = 0.75;       // of the bytes moved
  constexpr int64_t kTermsInTile = 64;  // of less, putting the tiles' sums together takes as long as they do
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
  const bool in_order = kernel.sequential > 0, partials = kernel.combines_partials, waits = kernel.bytes_waited > kernel.bytes_moved;
  auto consider = [&](int c, auto bytes, int64_t least) {
    if (in_order || cuts_rows(c)) return;
    Kernel other = tiled_from(draft, {}, c);
    const bool fewer = static_cast<double>(std::invoke(bytes, other)) < kFewer * static_cast<double>(std::invoke(bytes, kernel));
    if (!fewer || other.bytes_priced() >= kernel.bytes_priced() || other.axes[static_cast<size_t>(c)].tile < least) return;
    kernel = std::move(other);
    first = c;
  };
  if (draft.members.size() > 1 && partials)
    for (const std::vector<int> others(kernel.shared.begin() + 1, kernel.shared.end()); int c : others)
      consider(c, &Kernel::bytes_moved, 0);
  // An axis that all sum over is whole in every tile unless it is the first one. Of y[c,a,b] = sum(n: x[c,n,a]*z[c,n,b]) with two c and three a
  // and b the tiles would be single results then, each of which waits for all that lies between its terms.
  for (int c = 0; waits && c < static_cast<int>(draft.axes.size()); ++c)
    if (draft.shared[static_cast<size_t>(c)] && reduced_by_all(draft, c)) consider(c, &Kernel::bytes_priced, kTermsInTile);
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

// One thread shares the places of a scatter, or of segments, with nobody: in one tile it need not ask of any term whether it falls into
// another. (Results do not depend on the tiles, so those that leave partial results keep them.)
void Planner::scatter_at_once(const Draft& draft, Kernel& kernel) const {
  const int64_t few = machine_.scatter_tiles.value_or(machine_.least_tiles);
  auto for_threads = [&](int c) {
    const TileRule& rule = kernel.axes[static_cast<size_t>(c)].rule;
    return rule.kind == TileRule::Kind::split && rule.least_tiles <= few;
  };
  auto asks_all = [&](const Member& m) { return asked_in_tile(draft, m) > 0 && std::ranges::any_of(kernel.shared, for_threads); };
  const bool scatters =
      std::ranges::any_of(kernel.members, [&](const Member& m) { return !shape(m).scatter_targets.empty() || asks_all(m); });
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

// Bytes that could be moved while memory is waited for because tiles touch t, of which they move so many bytes, in short runs: a tile that
// takes 4 columns of a matrix of f32 uses 16 bytes of each row. A tile that is one run has no such cost, however short it is. Where no tile
// takes what lies between two runs (f[g,2] in rows of three), it may be moved with them.
int64_t Planner::waited_for(const Draft& draft, TensorId t, int64_t moved, const std::vector<int64_t>* window) const {
  const std::vector<int>& classes = draft.dims.at(t);
  int64_t run = static_cast<int64_t>(byte_size(p_.tensors[t].type)), runs = 1;  // bytes that lie side by side, and how often
  int64_t start = machine_.run_start_bytes;
  bool ends = false;
  for (size_t i = classes.size(); i-- > 0;) {
    const int64_t whole = std::max<int64_t>(1, extent(p_.tensors[t].shape[i]));
    int64_t taken = whole;
    const bool tiled = classes[i] >= 0 && draft.walked(classes[i]);
    if (tiled)
      taken = in_tile(draft, classes[i], true);
    else if (window)
      taken = (*window)[i];
    taken = std::clamp<int64_t>(taken, 1, whole);
    if (!ends && !tiled && taken < whole) start = std::min(start, (whole - taken) * run);
    (ends ? runs : run) *= taken;
    ends |= taken < whole;
  }
  return runs == 1 ? 0 : moved / run * start;
}

void Planner::count_bytes(const Draft& draft, Kernel& k) const {
  const Arena& a = *p_.arena;
  k.bytes_moved = k.bytes_unavoidable = k.bytes_packed = k.bytes_waited = k.bytes_in_vain = 0;
  auto tiles_along = [&](int c) -> int64_t {
    if (std::ranges::find(k.shared, c) == k.shared.end()) return 1;
    const KernelAxis& axis = k.axes[static_cast<size_t>(c)];
    return std::max<int64_t>(1, (axis.extent + axis.tile - 1) / std::max<int64_t>(1, axis.tile));
  };
  int64_t tiles = 1;
  for (int c : k.shared) tiles *= tiles_along(c);
  bool in_cache = footprint(draft, true) <= machine_.l2_bytes;
  std::set<TensorId> results(k.results.begin(), k.results.end());
  const auto read = windows(draft, true);
  auto window_bytes = [&](TensorId t) {
    int64_t n = static_cast<int64_t>(byte_size(p_.tensors[t].type));
    for (size_t i = 0; i < p_.tensors[t].shape.size(); ++i) n *= std::min(extent(p_.tensors[t].shape[i]), read.at(t)[i]);
    return n;
  };
  for (auto& [t, classes] : draft.dims) {
    bool produced = draft.producer.contains(t);
    if (produced && !results.contains(t)) continue;  // lives and dies inside the tile
    int64_t size = bytes(t);
    k.bytes_unavoidable += size;
    int64_t moved = size;
    if (!produced) {
      // Looked at again: in as many members as read it, unless the tile stays in cache.
      int64_t looks = 0;
      for (const Member& m : k.members) looks += std::ranges::any_of(shapes_[m.definition].reads, [&](Id r) { return a[r].symbol == t; });
      if (!in_cache && depth(draft) > 1) moved *= std::max<int64_t>(1, std::min<int64_t>(looks, depth(draft)));
      // Not along the tiles at all: every tile reads its window of it; from cache if all of it stays there.
      bool tiled = std::ranges::any_of(classes, [&](int c) { return c >= 0 && draft.walked(c); });
      if (!tiled && size > machine_.l2_bytes) moved = std::max(moved, std::min(moved, window_bytes(t)) * tiles);
    }
    k.bytes_moved += moved;
    k.bytes_waited += waited_for(draft, t, moved, produced ? nullptr : &read.at(t));
  }
  k.bytes_in_vain += tiles * asked_bytes(draft);
  for (const Member& m : k.members) {
    k.bytes_packed += tiles * packed_in_tile(draft, m);
    k.bytes_in_vain += multiplied_in_vain(draft, m, tiles) + idle_lanes(draft, m, tiles) + looked_at_in_vain(draft, k, m, tiles);
    int64_t partials = 1;
    for (int c : m.reduced)
      if (k.leaves_partials(c)) partials *= tiles_along(c);
    if (partials > 1) k.bytes_moved += 2 * partials * bytes(p_.forward.definitions[m.definition].target());  // written and read
  }
}

}  // namespace xhat::fusion
