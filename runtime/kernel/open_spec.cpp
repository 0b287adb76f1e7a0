// Kernels whose code serves all sizes of some dims.
#include <algorithm>

#include "runtime/kernel/kernel_access.h"
#include "runtime/kernel/spec_builder.h"

namespace xhat::runtime {
namespace {

// Marks the dimensions whose extents depend on sizes of the call: of the program's tensors by their shapes, of others by the axes that they are
// computed over.
void mark_sized(SpecBuilder& b) {
  for (uint32_t i = 0; i < b.spec.tensors.size(); ++i) {
    SpecTensor& t = b.spec.tensors[i];
    t.sized.assign(t.shape.size(), false);
    const SpecMember* maker = nullptr;
    for (const SpecMember& m : b.spec.members)
      if (m.tensor == i) maker = &m;
    for (size_t d = 0; d < t.shape.size(); ++d) {
      if (t.original == kInternal) {
        t.sized[d] = maker && b.spec.axes.at(maker->left[d]).sized;
        continue;
      }
      for (int of = t.groups[d].first; of <= t.groups[d].second; ++of)
        if (b.is_open(b.p.tensors[t.original].shape[static_cast<size_t>(of)])) t.sized[d] = true;
    }
  }
}

}  // namespace

KernelSpec make_open_spec(const Program& p, const Kernel& k, const DimValues& sizes, const std::vector<bool>& dense,
                          const std::vector<std::string>& open, const std::vector<bool>& cut, bool in_rows) {
  SpecBuilder b{p, k, sizes, dense};
  b.in_rows = in_rows;
  b.spec.arena = std::make_shared<Arena>();
  for (const std::string& name : open) {
    b.open_dims.insert(p.arena->dim(name));
    const Id axis = b.arena().axis("size_" + name);
    SpecAxis& value = b.spec.axes[axis];
    value.extent = value.tile = sizes.at(name);
    value.fixed = false;
    value.sized = true;
    b.spec.sizes[b.arena().dim(name)] = axis;
  }
  begin(b, false);
  for (size_t c = 0; c < k.axes.size(); ++c) {
    SpecAxis& axis = b.spec.axes.at(b.class_axis[c]);
    axis.open = axis.sized && cut[c];
  }
  for (size_t c = 0; c < k.axes.size(); ++c)
    if (const KernelAxis& axis = k.axes[c]; axis.of >= 0 && std::ranges::find(k.shared, axis.of) != k.shared.end())
      tie_axis(b.spec, b.class_axis[c], b.class_axis[static_cast<size_t>(axis.of)], axis.each);
  for (size_t c = 0; c < k.axes.size(); ++c) {
    auto axis = b.spec.axes.find(b.class_axis[c]);
    if (k.axes[c].phases > 1 && axis != b.spec.axes.end() && !axis->second.sized) split_phases(b.spec, b.class_axis[c], k.axes[c].phases);
  }
  join_windows(b.spec);
  share_expensive(b.spec);
  collapse(b.spec);
  for (auto& [id, axis] : b.spec.axes) {
    axis.static_extent = !axis.sized;
    axis.open = axis.sized && axis.shared >= 0;
  }
  b.uses();
  mark_sized(b);
  b.spec.sealed = true;
  // What nothing computes with is no argument.
  std::set<Id> used;
  for (const SpecMember& m : b.spec.members)
    for (Id id : reachable(b.arena(), roots(m))) used.insert(id);
  for (const auto& [dim, axis] : b.spec.sizes)
    if (!used.contains(dim)) b.spec.axes.erase(axis);
  return std::move(b.spec);
}

}  // namespace xhat::runtime
