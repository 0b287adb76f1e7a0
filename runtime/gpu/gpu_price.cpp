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
constexpr double kLoads = 0.02, kOperations = 0.06;
constexpr double kOfEdge = 4, kOfAxis = 6;  // operations: of an index that may lie outside, of an axis of a term's number
constexpr double kTermsOfThread = 32;  // a sum whose terms are split leaves so many to each
// What is computed in a tile takes so many times as long: its threads wait at barriers, and have fewer results each (backward, one launch for all
// and one for each: attention 115 and 91 us, bilateral3x3 466 and 318, mlp2 138 and 125; what moves memory does not: layer_norm 62 and 99).
constexpr double kInTile = 1.4;

}  // namespace

// For a group of members in a launch of so many threads.
double GpuLowering::group_ns(const std::vector<size_t>& group, double points, double terms, double threads, bool tiled) const {
  const Arena& a = *spec_.arena;
  const double n = points * terms, resident = std::min(threads, kResident);
  const double slower = tiled ? kInTile : 1;
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
        if (op != Op::read) operations += kOfEdge * static_cast<double>(read_indices(a[id]).size());
        moved(a[id].symbol);
      } else if (op != Op::constant && op != Op::axis) {
        operations += 1;
      }
    }
    moved(m.tensor);
  }
  // Lanes work out where a term of several axes lies.
  const SpecMember& first = spec_.members[group[0]];
  if (first.reduced.size() > 1 && sharing(group, static_cast<int64_t>(points), static_cast<int64_t>(terms), kThreads).lanes > 1)
    operations += kOfAxis * static_cast<double>(first.reduced.size() - 1);
  return std::max({bytes / kBytes, n * loads / (resident * kLoads), slower * n * operations / (resident * kOperations)});
}

// What its threads read of the second cache: a warp whose threads have neighbouring elements, all of them; else one.
double GpuLowering::cached_ns(const std::vector<size_t>& group) const {
  constexpr double kCached = 5500;  // bytes per ns
  const Arena& a = *spec_.arena;
  const SpecMember& m = spec_.members[group[0]];
  if (m.left.empty() || m.reduced.empty()) return 0;
  const double results = static_cast<double>(all_of(m.left).total().like()), terms = terms_of(m);
  const Sharing s = sharing(group, static_cast<int64_t>(results), static_cast<int64_t>(terms), kThreads);
  const Id neighbours = s.lanes_first && s.lanes > 1 ? m.reduced.back() : m.left.back();
  double bytes = 0;
  for (size_t g : group)
    for (Id id : reachable(a, roots(spec_.members[g])))
      if (is_read(a[id].op) && !a[id].free_axes().empty())
        bytes += static_cast<double>(byte_size(a[id].type)) / (depends(id, {neighbours}) ? 1 : kWarp);
  return results * terms * bytes / kCached;
}

double GpuLowering::terms_of(const SpecMember& m) const { return static_cast<double>(all_of(m.reduced).total().like()); }

// Of one launch for all: a block per tile.
double GpuLowering::tile_ns(const std::vector<std::vector<size_t>>& groups) const {
  const double threads = static_cast<double>(spec_.tiles()) * kThreads;
  const Span in_tile = [this](const std::vector<Id>& axes) {
    Points p = all_of(axes);
    for (size_t i = 0; i < axes.size(); ++i) p.counts[i] = axis(axes[i]).in_tile();
    return p;
  };
  double ns = kLaunch_ns;
  for (const auto& group : groups) {
    const SpecMember& m = spec_.members[group[0]];
    auto results = static_cast<double>(all_of(m.left).total().like());
    // A member that does not have all grid axes is computed by each tile along the others.
    for (Id x : shared_axes())
      if (std::ranges::find(m.left, x) == m.left.end() && std::ranges::find(m.reduced, x) == m.reduced.end())
        results *= static_cast<double>(tiles_along(x).like());
    const auto r = rectangle({group}, in_tile(m.left), true, kSide * kSide, in_tile);
    ns += r ? kInTile * r->ns * static_cast<double>(ceil_div(spec_.tiles(), kMultiprocessors))
            : group_ns(group, results, terms_of(m), threads, true);
    if (std::ranges::any_of(group, [&](size_t g) { return spec_.across_tiles(spec_.members[g]); })) ns += kLaunch_ns;
  }
  return ns;
}

// Of a launch for each group, which leave their results in memory.
double GpuLowering::launches_ns(const std::vector<std::vector<size_t>>& groups) const {
  const Span all = [this](const std::vector<Id>& axes) { return all_of(axes); };
  double ns = 0;
  for (const auto& group : groups) {
    const auto r = rectangle({group}, all_of(spec_.members[group[0]].left), false, kSide * kSide, all);
    const double alone = alone_ns(group);
    ns += kLaunch_ns + (r ? std::min(r->ns, alone) : alone);
  }
  return ns;
}

// Of the group's launch `map` or `reduce`, without what it takes to begin.
double GpuLowering::alone_ns(const std::vector<size_t>& group) const {
  const SpecMember& m = spec_.members[group[0]];
  const auto results = static_cast<double>(all_of(m.left).total().like());
  const double terms = terms_of(m);
  const bool in_parts = split(group, 2).some();
  const double most = in_parts ? results * std::max(1.0, terms / kTermsOfThread) : results * std::min<double>(terms, kThreads);
  const double added_up = in_parts && results < kBusy && terms > kTermsOfThread * kThreads ? kLaunch_ns : 0;
  return group_ns(group, results, terms, most, false) + added_up;
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
