// The tiles of a kernel on a GPU, and the members that are left there.
#include <algorithm>
#include <set>

#include "expr/core/reduction_order.h"
#include "runtime/kernel/kernel_access.h"

namespace xhat::runtime {

namespace {

// Whether a sum reads the same for many of its results along the axis.
bool reuses_along(const KernelSpec& spec, Id x) {
  const Arena& a = *spec.arena;
  return std::ranges::any_of(spec.members, [&](const SpecMember& m) {
    if (m.reduced.empty() || std::ranges::find(m.left, x) == m.left.end()) return false;
    return std::ranges::any_of(reachable(a, m.body), [&](Id id) {
      return is_read(a[id].op) && !a[id].free_axes().empty() && !a[id].depends_on(x);
    });
  });
}

}  // namespace

// Tiles are blocks of threads here, of which a large GPU runs some hundreds at once.
void make_enough_tiles(KernelSpec& spec) {
  constexpr int64_t kReused = 16, kManyResults = 16 << 10;
  auto least = [&](Id x) {
    for (const SpecMember& m : spec.members) {
      if (std::ranges::find(m.reduced, x) == m.reduced.end()) continue;
      int64_t results = 1;
      for (Id l : m.left) results *= spec.axes.at(l).extent;
      const bool whole = !combines_in_parts(m.op, spec.tensors[m.tensor].type);
      if (whole || results > kManyResults) return spec.axes.at(x).tile;  // each tile leaves a row of them
    }
    return reuses_along(spec, x) ? kReused : 1;
  };
  while (spec.tiles() < kEnoughBlocks) {
    SpecAxis* largest = nullptr;
    for (Id x : spec.shared) {
      SpecAxis& axis = spec.axes.at(x);
      if (axis.tile > least(x) && (!largest || axis.tile > largest->tile)) largest = &axis;
    }
    if (!largest) return;
    largest->tile = (largest->tile + 1) / 2;
  }
}

// Each tile leaves a row of the sums across tiles, and the rows are read again to add them up: no more tiles than are enough, as far as
// what a tile keeps has room in shared memory.
void make_few_rows(KernelSpec& spec) {
  constexpr int64_t kSharedBytes = 32 << 10;
  auto kept = [&] {
    int64_t bytes = 0;
    for (const SpecMember& m : spec.members) {
      if (spec.tensors[m.tensor].use != SpecTensor::Use::temporary) continue;
      int64_t n = static_cast<int64_t>(byte_size(spec.tensors[m.tensor].type));
      for (Id x : m.left) n *= spec.axes.at(x).in_tile();
      bytes += n;
    }
    return bytes;
  };
  for (Id x : spec.shared) {
    SpecAxis& axis = spec.axes.at(x);
    const bool rows = std::ranges::any_of(
        spec.members, [&](const SpecMember& m) { return spec.across_tiles(m) && std::ranges::find(m.reduced, x) != m.reduced.end(); });
    while (rows && axis.kind() != AxisKind::untiled && spec.tiles() >= 2 * kEnoughBlocks) {
      axis.tile *= 2;
      if (kept() <= kSharedBytes) continue;
      axis.tile /= 2;
      break;
    }
  }
}

// Members whose values nobody reads, now that sizes are numbers: a sum over nothing that stood beside a factor that is zero.
void drop_unread(KernelSpec& spec) {
  std::set<uint32_t> read;
  for (size_t i = spec.members.size(); i-- > 0;) {
    const SpecMember& m = spec.members[i];
    if (spec.tensors[m.tensor].use == SpecTensor::Use::temporary && !read.contains(m.tensor)) {
      spec.members.erase(spec.members.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    for (Id id : reachable(*spec.arena, roots(m)))
      if (const Node& n = (*spec.arena)[id]; is_read(n.op)) read.insert(n.symbol);
  }
}

}  // namespace xhat::runtime
