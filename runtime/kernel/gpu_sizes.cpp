// Which sizes a GPU's code knows. A batch - the slowest dimension of all tensors that have it - is no more than a limit, a number
// of blocks, a loop: it comes with each launch, and the same code serves every batch size. Where something is chosen by it (threads
// of a block, lanes of a sum) it is chosen for a class of sizes: with_class_representatives_for_gpu() puts the power of two that is not larger in the
// place of the size, and lowering sees nothing else. Mostly nothing is chosen: neighbouring classes have the same text.
//
// Tiles lie in shared memory and are counted in the code, so those of such kernels are powers of two: few of them for all sizes.
#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <utility>

#include "runtime/kernel/kernel_access.h"

namespace xhat::runtime {
namespace {

constexpr int64_t kLargest = int64_t{1} << 20;  // larger ones are one class

int64_t like(int64_t n) { return std::min(kLargest, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n)))); }

// Axes that are nothing but the slowest dimension of every tensor that has them.
std::set<Id> batches(const KernelSpec& spec) {
  std::set<Id> slowest, others = used_as_values(spec);
  for (const auto& [place, indices] : indices_of(spec)) {
    const SpecTensor& t = spec.tensors[place.first];
    for (Id x : indices) {
      auto axis = spec.axes.find(x);
      if (axis == spec.axes.end()) continue;
      bool alone = place.second == 0 && indices.size() == 1 && t.steps[0] == 1 && t.shape[0] == axis->second.extent;
      (alone ? slowest : others).insert(x);
    }
  }
  for (const auto& [id, axis] : spec.axes)
    if (axis.fixed || axis.extent < 1) others.insert(id);
  std::erase_if(slowest, [&](Id x) { return others.contains(x); });
  // One per loop: what is counted is a multiple of one of them.
  bool tiled = false;
  for (Id x : spec.shared)
    if (slowest.contains(x) && std::exchange(tiled, true)) slowest.erase(x);
  for (const SpecMember& m : spec.members) {
    bool reduced = false, left = false, in_tiles = false;
    for (Id x : m.reduced) {
      if (slowest.contains(x) && std::exchange(reduced, true)) slowest.erase(x);
      in_tiles |= slowest.contains(x) && spec.axes.at(x).shared >= 0;
    }
    // A scatter's terms are counted over both, and so are the partial results of tiles: a row of results for each.
    const bool both = reduced && (in_tiles || !m.scatter.empty());
    for (Id x : m.left)
      if (slowest.contains(x) && (std::exchange(left, true) || both)) slowest.erase(x);
  }
  return slowest;
}

}  // namespace

void open_for_gpu(KernelSpec& spec) {
  const std::set<Id> open = batches(spec);
  if (open.empty()) return;
  for (Id x : open) {
    SpecAxis& axis = spec.axes.at(x);
    axis.static_extent = false;
    axis.open = axis.shared >= 0;
  }
  for (Id x : spec.shared) {
    SpecAxis& axis = spec.axes.at(x);
    if (axis.kind() == AxisKind::tiled) axis.tile = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(axis.tile)));
  }
}

void give_counts(KernelSpec& spec) {
  const std::set<Id> open = batches(spec);
  std::map<Id, uint32_t> count;
  for (auto& [id, axis] : spec.axes) {
    axis.static_extent = axis.static_extent || !open.contains(id);
    if (axis.static_extent) continue;
    axis.count = count[id] = static_cast<uint32_t>(spec.tensors.size());
    SpecTensor& t = spec.tensors.emplace_back();
    t.original = kInternal;
    t.type = DType::i32;
    t.value = static_cast<double>(axis.extent);
  }
  for (const auto& [place, indices] : indices_of(spec))
    if (auto it = count.find(*indices.begin()); it != count.end()) spec.tensors[place.first].count = it->second;
}

KernelSpec with_class_representatives_for_gpu(const KernelSpec& spec) {
  KernelSpec c = spec;
  std::map<uint32_t, int64_t> extents;  // by count
  for (auto& [id, axis] : c.axes) {
    if (axis.count == kNoCount) continue;
    axis.extent = axis.multiple * like(axis.extent / axis.multiple);
    if (axis.shared < 0) axis.tile = axis.extent;
    extents[axis.count] = axis.extent;
  }
  for (SpecTensor& t : c.tensors)
    if (t.count != kNoCount) t.shape[0] = extents.at(t.count);
  return c;
}

}  // namespace xhat::runtime
