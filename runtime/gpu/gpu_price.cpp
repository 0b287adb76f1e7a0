// How long launches take, roughly: what decides whether the members of a kernel share one launch, and into how many parts a sum is split.
// Rates are of an H100 with f32, as measured by bench/gpu_compare; only their ratios matter.
#include <algorithm>
#include <bit>

#include "cse/normalize/auto_inliner.h"
#include "expr/core/reduction_order.h"
#include "runtime/gpu/gpu_lowering.h"
#include "runtime/kernel/kernel_access.h"

namespace xhat::runtime {

namespace {

constexpr double kLaunch_ns = 2000;                    // from the end of one to the start of the next
constexpr double kBytes = 2500;                        // of memory, per ns
constexpr double kResident = kMultiprocessors * 2048;  // threads that run at once
constexpr double kBusy = kMultiprocessors * 512;       // threads that multiply as fast as all: registers leave room for no more
// Per ns and thread: what waits for memory rather than for anything else (batch_norm by 64 blocks), and what is in registers and shared
// memory (dense_gelu, 0.54 G products by 65536 threads in 84 us).
constexpr double kLoads = 0.02, kOperations = 0.06, kProducts = 0.1;
constexpr double kTermsOfThread = 32;  // a sum whose terms are split leaves so many to each
// What is computed in a tile takes so many times as long: its threads wait at barriers, and have fewer results each (backward, one launch for all
// and one for each: attention 115 and 91 us, bilateral3x3 466 and 318, mlp2 138 and 125; what moves memory does not: layer_norm 62 and 99).
constexpr double kInTile = 1.4;

}  // namespace

// Whether a block computes a rectangle of the group's results that read the same elements (gpu_contract.cpp).
bool GpuLowering::contracts(const std::vector<size_t>& group, const Points& points) const {
  constexpr int64_t kLeastRows = 4;
  return spec_.members[group[0]].op != Op::constant && !sides({group}, points, kLeastRows).empty();
}

// For a group of members in a launch of so many threads.
double GpuLowering::group_ns(const std::vector<size_t>& group, double points, double terms, double threads, bool contracts,
                             bool tiled) const {
  const Arena& a = *spec_.arena;
  const double n = points * terms, resident = std::min(threads, kResident);
  const double slower = tiled ? kInTile : 1;
  if (contracts) return slower * n * static_cast<double>(group.size()) / (std::min(threads, kBusy) * kProducts);
  double loads = 0, operations = 0, bytes = 0;
  std::vector<uint32_t> seen;
  auto moved = [&](uint32_t t) {
    const bool temporary = spec_.tensors[t].use == SpecTensor::Use::temporary;
    if ((tiled && temporary) || std::ranges::find(seen, t) != seen.end()) return;
    seen.push_back(t);
    bytes += this->bytes(t);
  };
  for (size_t g : group) {
    const SpecMember& m = spec_.members[g];
    for (Id id : reachable(a, roots(m))) {
      const Op op = a[id].op;
      if (is_read(op)) {
        if (a[id].free_axes().empty()) continue;
        loads += 1;
        moved(a[id].symbol);
      } else if (op != Op::constant && op != Op::axis) {
        operations += 1;
      }
    }
    moved(m.tensor);
  }
  return std::max({bytes / kBytes, n * loads / (resident * kLoads), slower * n * operations / (resident * kOperations)});
}

double GpuLowering::terms_of(const SpecMember& m) const { return static_cast<double>(all_of(m.reduced).total().like()); }

// Of one launch for all: a block per tile.
double GpuLowering::tile_ns(const std::vector<std::vector<size_t>>& groups) const {
  const double threads = static_cast<double>(spec_.tiles()) * kThreads;
  double ns = kLaunch_ns;
  for (const auto& group : groups) {
    const SpecMember& m = spec_.members[group[0]];
    Points points = all_of(m.left);
    auto results = static_cast<double>(points.total().like());
    for (size_t i = 0; i < m.left.size(); ++i) points.counts[i] = axis(m.left[i]).in_tile();
    // A member that does not have all grid axes is computed by each tile along the others.
    for (Id x : shared_axes())
      if (std::ranges::find(m.left, x) == m.left.end() && std::ranges::find(m.reduced, x) == m.reduced.end())
        results *= static_cast<double>(tiles_along(x).like());
    ns += group_ns(group, results, terms_of(m), threads, contracts(group, points), true);
    if (std::ranges::any_of(group, [&](size_t g) { return spec_.across_tiles(spec_.members[g]); })) ns += kLaunch_ns;
  }
  return ns;
}

// Of a launch for each group, which leave their results in memory.
double GpuLowering::launches_ns(const std::vector<std::vector<size_t>>& groups) const {
  double ns = 0;
  for (const auto& group : groups) {
    const SpecMember& m = spec_.members[group[0]];
    Points points = all_of(m.left);
    const auto results = static_cast<double>(points.total().like());
    const double terms = terms_of(m);
    const bool in_parts = split(group, 2).some();
    const double most = in_parts ? results * std::max(1.0, terms / kTermsOfThread) : results * std::min<double>(terms, kThreads);
    ns += kLaunch_ns + group_ns(group, results, terms, most, contracts(group, points), false);
    if (in_parts && results < kBusy && terms > kTermsOfThread * kThreads) ns += kLaunch_ns;  // that adds up
  }
  return ns;
}

// The group's sums in about so many parts, or whole where they cannot be.
Split GpuLowering::split(const std::vector<size_t>& group, int64_t wanted) const {
  constexpr int64_t kLongRun = 64;  // terms that lie side by side stay together
  const SpecMember& first = spec_.members[group[0]];
  if (wanted < 2 || first.reduced.empty()) return {};
  for (size_t g : group) {
    const SpecMember& m = spec_.members[g];
    if (byte_size(spec_.tensors[m.tensor].type) < 4) return {};  // a row would be rounded
    if (m.op == Op::argmax || m.op == Op::argmin || !m.scatter.empty() || !combines_in_parts(m.op, (*spec_.arena)[m.body].type)) return {};
  }
  Id longest = first.reduced[0];  // the slowest that is long enough
  for (Id x : first.reduced) {
    if (extent(longest).like() >= wanted) break;
    if (extent(x).like() > extent(longest).like()) longest = x;
  }
  const Count whole = extent(longest);
  const int64_t run = longest == first.reduced.back() && whole.like() >= wanted * kLongRun ? kLongRun : 1;
  const int64_t parts = std::min(wanted, whole.like() / run);
  if (parts < 2) return {};
  const Count each = whole.over(parts * run) * run;
  return {longest, whole.open() ? parts : (whole.like() + each.like() - 1) / each.like(), each};
}

}  // namespace xhat::runtime
