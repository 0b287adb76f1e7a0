// Calls by which the promises of a kernel are tried (runtime/cpu/assumptions.h).
#include <algorithm>

#include "runtime/cpu/lowering.h"
#include "runtime/cpu/assumptions.h"

namespace xhat::runtime {

// The first tile of a kernel, the last one, and one of a single element.
std::vector<SampleCall> Lowering::sample_calls() const {
  std::vector<SampleCall> calls;
  for (int tile = 0; tile < 3; ++tile) {
    std::map<Id, int64_t> count;
    SampleCall& c = calls.emplace_back();
    for (const auto& [id, its] : spec_.axes) {
      const int64_t most = std::min(its.in_tile(), its.extent);
      const int64_t n = its.kind() == AxisKind::tiled && tile == 2 ? 1 : most;
      count[id] = n;
      c.scalars["o_" + spec_.arena->name(id)] = tile == 0 ? 0 : its.extent - n;
      c.scalars["n_" + spec_.arena->name(id)] = n;
    }
    auto whole = [&](const std::string& buffer, const SpecTensor& t) { c.extents[buffer] = {t.shape.rbegin(), t.shape.rend()}; };
    for (uint32_t t = 0; t < spec_.tensors.size(); ++t)
      if (emit_.inputs[t].defined()) whole(emit_.inputs[t].name(), spec_.tensors[t]);
    for (const auto& [t, image] : carried_) whole(image.name(), spec_.tensors[t]);
    for (const auto& [m, buffer] : result_buffers_) {
      std::vector<int64_t> extents;
      for (size_t d : tile_dimensions(spec_, *m)) extents.insert(extents.begin(), count.at(m->left[d]));
      c.extents[buffer] = extents;
    }
  }
  return calls;
}

}  // namespace xhat::runtime
