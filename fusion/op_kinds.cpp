// The kind of an op, read off its relations.
#include <algorithm>
#include <set>

#include "expr/affine.h"
#include "fusion/relations.h"
#include "fusion/scatter.h"

namespace xhat::fusion {
namespace {

// The number of the axis in `axes` that the index is, if it runs over the whole dimension.
std::optional<size_t> whole_axis(Arena& a, const std::vector<AxisRange>& axes, Id index, Id extent) {
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i].axis == index && is_constant(a, axes[i].begin, 0) &&
        (axes[i].end == extent || provably_equal(a, axes[i].end, extent)))
      return i;
  return std::nullopt;
}

// Per dimension of the input, the axis it is read along (of left and reduced ones, numbered through). Dimensions of extent
// 1 are left out. None: some index is no axis, or runs over a part.
std::optional<std::vector<size_t>> places(Arena& a, const Relation& r, const Tensor& input) {
  std::vector<AxisRange> axes = r.axes;
  axes.insert(axes.end(), r.ranges.begin(), r.ranges.end());
  std::vector<size_t> found;
  for (size_t i = 0; i < r.indices.size(); ++i) {
    if (is_constant(a, r.indices[i], 0) && is_constant(a, input.shape[i], 1)) continue;
    auto at = whole_axis(a, axes, r.indices[i], input.shape[i]);
    if (!at || std::ranges::find(found, *at) != found.end()) return std::nullopt;
    found.push_back(*at);
  }
  return found;
}

OpKind kind_of_map(Arena& a, const Relation& r, const Tensor& input) {
  auto at = places(a, r, input);
  if (!at || !std::ranges::is_sorted(*at)) return OpKind::injective;
  return at->size() == r.axes.size() && input.shape.size() == r.axes.size() ? OpKind::elemwise : OpKind::broadcast;
}

// Each step of the reduction takes an element of its own, unless the element does not depend on a left axis: then all
// results along that axis use it again.
OpKind kind_of_reduction(Arena& a, const Relation& r, const Tensor& input) {
  auto at = places(a, r, input);
  if (!at) return OpKind::out_fusable;
  const bool steps = std::ranges::any_of(*at, [&](size_t i) { return i >= r.axes.size(); });
  for (size_t i = 0; steps && i < r.axes.size(); ++i)
    if (std::ranges::find(*at, i) == at->end() && !is_constant(a, r.axes[i].end, 1)) return OpKind::out_fusable;
  return OpKind::comm_reduce;
}

}  // namespace

OpKind kind_of(const Program& p, const Definition& d) {
  Arena& a = *p.arena;
  if (d.is_call()) return OpKind::opaque;
  const bool reduces = is_reduction(a[d.body].op);
  if (reduces && as_scatter(a, d)) return OpKind::opaque;
  OpKind kind = reduces ? OpKind::comm_reduce : OpKind::elemwise;
  for (const Relation& r : direct_relations(p, d)) {
    const Tensor& input = p.tensors[r.input];
    // A reduction inside a map: what it reads is no single place.
    if (!reduces && !r.ranges.empty()) return OpKind::opaque;
    kind = std::max(kind, reduces ? kind_of_reduction(a, r, input) : kind_of_map(a, r, input));
  }
  return kind;
}

DataflowGraph dataflow(const Program& p) {
  Arena& a = *p.arena;
  DataflowGraph g;
  std::vector<size_t> op_of(p.tensors.size(), SIZE_MAX);
  auto add = [&](TensorId t, DataflowOp op) {
    op.name = p.tensors[t].name;
    for (Id e : p.tensors[t].shape) op.shape.push_back(print(p, e));
    op_of[t] = g.ops.size();
    g.ops.push_back(std::move(op));
  };
  for (TensorId t : p.inputs) add(t, {.name = {}, .form = DataflowOp::Form::parameter});
  for (const Definition& d : p.body.definitions) {
    DataflowOp op{.name = {}, .kind = kind_of(p, d)};
    for (TensorId t : tensors_read(a, d.body)) op.args.push_back(op_of.at(t));
    // A reshape or a copy computes nothing: the body is one read.
    op.only_reshapes = is_read(a[d.body].op) && op.kind == OpKind::injective;
    add(d.target(), std::move(op));
  }
  for (TensorId t : p.outputs)
    if (op_of[t] != SIZE_MAX) g.results.push_back(op_of[t]);
  return g;
}

}  // namespace xhat::fusion
