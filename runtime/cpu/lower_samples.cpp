// Calls by which the promises of a kernel are tried (runtime/cpu/assumptions.h).
#include <algorithm>

#include "runtime/cpu/assumptions.h"
#include "runtime/cpu/lowering.h"

namespace xhat::runtime {

// The first tile of a kernel, the last one, and one of a single element; where the code serves all sizes, also of small ones.
std::vector<SampleCall> Lowering::sample_calls() const {
  std::vector<SampleCall> calls;
  for (const KernelSpec* spec : {&spec_, spec_.small.get()})
    for (int tile = 0; spec && tile < 3; ++tile) calls.push_back(sample_call(*spec, tile));
  return calls;
}

// spec: spec_, or the same kernel at other sizes.
SampleCall Lowering::sample_call(const KernelSpec& spec, int tile) const {
  SampleCall c;
  std::map<Id, int64_t> count;
  for (const auto& [id, its] : spec.axes) {
    const int64_t most = std::min(its.in_tile(), its.extent);
    const int64_t n = its.kind() == AxisKind::tiled && tile == 2 ? 1 : most;
    count[id] = n;
    c.scalars["o_" + spec.arena->name(id)] = tile == 0 ? 0 : its.extent - n;
    c.scalars["n_" + spec.arena->name(id)] = n;
  }
  auto whole = [&](const std::string& buffer, const SpecTensor& t) { c.extents[buffer] = {t.shape.rbegin(), t.shape.rend()}; };
  for (uint32_t t = 0; t < spec.tensors.size(); ++t)
    if (emit_.inputs[t].defined()) whole(emit_.inputs[t].name(), spec.tensors[t]);
  for (const auto& [t, image] : carried_) whole(image.name(), spec.tensors[t]);
  for (const auto& [m, buffer] : result_buffers_) {
    const SpecMember& its = spec.members[static_cast<size_t>(m - spec_.members.data())];
    std::vector<int64_t> extents;
    for (size_t d : tile_dimensions(spec, its)) extents.insert(extents.begin(), count.at(its.left[d]));
    c.extents[buffer] = extents;
  }
  return c;
}

}  // namespace xhat::runtime
