#include "runtime/kernel/kernel_spec.h"

#include <algorithm>

#include "runtime/kernel/spec_builder.h"

namespace xhat::runtime {

Id with_collected_indices(Arena& a, Id root) {
  std::unordered_map<Id, Id> done;
  std::vector<Id> args;
  for (Id id : reachable(a, root)) {
    const Node n = a[id];
    args.clear();
    for (Id x : n.args()) args.push_back(done.at(x));
    size_t places = is_read(n.op) ? read_indices(n).size() : is_comparison(n.op) ? args.size() : 0;
    for (size_t i = 0; i < places; ++i)
      if (a[args[i]].type == DType::i64) args[i] = collected(a, args[i]);
    done[id] = a.with_args(id, args);
  }
  return done.at(root);
}

bool KernelSpec::across_tiles(const SpecMember& m) const {
  return std::ranges::any_of(m.reduced, [&](Id x) { return axes.at(x).kind() != AxisKind::untiled && !axes.at(x).sequential; });
}

Id KernelSpec::remainder_of(const SpecMember& m, Id quotient) const {
  const auto& groups = tensors[m.tensor].groups;
  for (size_t i = 0; i + 1 < m.left.size(); ++i)
    if (m.left[i] == quotient && groups[i] == groups[i + 1]) return m.left[i + 1];
  return kNone;
}

Id KernelSpec::carried_over(const SpecMember& m) const {
  auto carried = std::ranges::find_if(m.reduced, [&](Id x) { return axes.at(x).kind() != AxisKind::untiled && axes.at(x).sequential; });
  return carried == m.reduced.end() ? kNone : *carried;
}

int64_t KernelSpec::terms(const SpecMember& m) const {
  int64_t n = 1;
  for (Id x : m.reduced) n *= axes.at(x).in_tile();
  return n;
}

bool KernelSpec::inside(const Node& read) const {
  if (any_size()) return false;
  auto ids = read_indices(read);
  for (size_t i = 0; i < ids.size(); ++i) {
    auto [low, high] = interval(ids[i]);
    if (low < 0 || high >= tensors[read.symbol].shape[i]) return false;
  }
  return true;
}

int64_t KernelSpec::tiles() const {
  int64_t n = 1;
  for (Id x : shared) {
    const SpecAxis& axis = axes.at(x);
    n *= axis.kind() == AxisKind::untiled ? 1 : (axis.extent + axis.tile - 1) / axis.tile;
  }
  return n;
}

KernelSpec make_spec(const Program& p, const Kernel& k, const DimValues& sizes, const std::vector<bool>& dense, bool in_rows) {
  SpecBuilder b{p, k, sizes, dense};
  b.in_rows = in_rows;
  begin(b);
  b.spec.streams = k.streams;
  b.spec.vectors = k.choice.vectors;
  for (size_t c = 0; c < k.axes.size(); ++c)
    if (const KernelAxis& axis = k.axes[c]; axis.of >= 0 && std::ranges::find(k.shared, axis.of) != k.shared.end())
      tie_axis(b.spec, b.class_axis[c], b.class_axis[static_cast<size_t>(axis.of)], axis.each);
  for (size_t c = 0; c < k.axes.size(); ++c)
    if (k.axes[c].phases > 1) split_phases(b.spec, b.class_axis[c], k.axes[c].phases);
  split_blocks(b.spec);
  join_windows(b.spec);
  fold_conditions_into_packed(b.spec);
  share_expensive(b.spec);
  collapse(b.spec);
  open_slowest(b.spec);
  b.uses();
  choose_static_extents(b.spec);
  return std::move(b.spec);
}

KernelSpec make_gpu_spec(const Program& p, const Kernel& k, const DimValues& sizes, bool atomics) {
  const std::vector<bool> dense(p.tensors.size(), true);
  SpecBuilder b{p, k, sizes, dense, atomics ? SpecBuilder::Scatters::words : SpecBuilder::Scatters::none};
  begin(b);
  for (size_t c = 0; c < k.axes.size(); ++c)
    if (k.axes[c].phases > 1) split_phases_for_gpu(b.spec, b.class_axis[c], k.axes[c].phases);
  open_for_gpu(b.spec);
  make_enough_tiles(b.spec);
  make_few_rows(b.spec);
  join_windows(b.spec);
  share_expensive(b.spec);
  collapse(b.spec);
  b.uses();
  drop_unread(b.spec);
  give_counts(b.spec);
  return std::move(b.spec);
}

KernelSpec make_nest_spec(const Program& p, const DimValues& sizes) {
  const std::vector<bool> dense(p.tensors.size(), true);
  Kernel k;
  k.name = p.name;
  k.results = p.outputs;
  auto axis = [&](Id id, int64_t extent) {
    k.axes.push_back({p.arena->name(id), extent, extent});
    return static_cast<int>(k.axes.size()) - 1;
  };
  for (size_t i = 0; i < p.forward.definitions.size(); ++i) {
    const Definition& d = p.forward.definitions[i];
    Member m{i, {}, {}};
    const std::vector<int64_t> shape = shape_of(p, d.target(), sizes);
    for (size_t j = 0; j < d.axes.size(); ++j) m.left.push_back(axis(d.axes[j].axis, shape[j]));
    if (const Node& root = (*p.arena)[d.body]; is_reduction(root.op))
      for (const AxisRange& r : reduce_axes(root)) m.reduced.push_back(axis(r.axis, 1));
    k.members.push_back(std::move(m));
  }
  SpecBuilder b{p, k, sizes, dense};
  begin(b, false);
  b.uses();
  return std::move(b.spec);
}

}  // namespace xhat::runtime
