// The kind of an op, from its relations.
#include <algorithm>
#include <ranges>
#include <set>

#include "expr/core/error.h"
#include "expr/core/uses.h"
#include "expr/index/affine.h"
#include "fusion/relations/relations.h"
#include "fusion/relations/scatter.h"

namespace xhat::fusion {
namespace {

// If the index is one of `axes` and runs over the whole dimension: the number of that axis.
std::optional<size_t> whole_axis(Arena& a, const std::vector<AxisRange>& axes, Id index, Id extent) {
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i].axis == index && is_constant(a, axes[i].begin, 0) &&
        (axes[i].end == extent || provably_equal(a, axes[i].end, extent)))
      return i;
  return std::nullopt;
}

// Per dimension of the input the number of the axis that indexes it: left axes first, then reduced ones. Dimensions of extent 1 are left
// out. None if an index is not an axis, or covers a part of the dimension.
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

bool is_product_of_reads(const Arena& a, Id body) {
  auto under_casts = [&](Id e) {
    while (a[e].op == Op::cast) e = a[e].arg(0);
    return e;
  };
  const Node& n = a[under_casts(body)];
  return n.op == Op::mul && is_read(a[under_casts(n.arg(0))].op) && is_read(a[under_casts(n.arg(1))].op);
}

// comm_reduce if one tensor has an element for every step of every result, and all other reads are aligned with it: an elementwise op, then a
// reduction. If there is no such tensor, elements are reused, as in a matrix product; if indices are not axes, the op is a window. Both are
// out_fusable. So is a product of a matrix with a vector, although the matrix is such a tensor.
OpKind kind_of_reduction(Arena& a, const Definition& d, const std::vector<Relation>& relations,
                         const std::vector<Tensor>& tensors) {
  bool covered = relations.empty(), reused = false;
  for (const Relation& r : relations) {
    auto at = places(a, r, tensors[r.input]);
    if (!at) return OpKind::out_fusable;
    covered = covered || at->size() == r.axes.size() + r.ranges.size();
    const bool steps = std::ranges::any_of(*at, [&](size_t i) { return i >= r.axes.size(); });
    const auto left = std::ranges::count_if(*at, [&](size_t i) { return i < r.axes.size(); });
    reused = reused || (steps && static_cast<size_t>(left) < r.axes.size());
  }
  const bool product = a[d.body].op == Op::sum && is_product_of_reads(a, reduce_body(a[d.body]));
  return covered && !(reused && product) ? OpKind::comm_reduce : OpKind::out_fusable;
}

}  // namespace

OpKind kind_of(const Program& p, const Definition& d) {
  Arena& a = *p.arena;
  if (d.is_call()) return OpKind::opaque;
  const bool reduces = is_reduction(a[d.body].op);
  if (reduces && as_scatter(a, d)) return OpKind::opaque;
  const std::vector<Relation> relations = direct_relations(p, d);
  if (reduces) return kind_of_reduction(a, d, relations, p.tensors);
  OpKind kind = OpKind::elemwise;
  for (const Relation& r : relations) {
    if (!r.ranges.empty()) return OpKind::opaque;  // a reduction inside a map
    kind = std::max(kind, kind_of_map(a, r, p.tensors[r.input]));
  }
  return kind;
}

namespace {

class Builder {
 public:
  Builder(const Program& p, const std::vector<DataflowNode>& nodes)
      : p_(p), nodes_(nodes), op_of_(p.tensors.size(), SIZE_MAX), node_of_(p.tensors.size(), SIZE_MAX), open_(nodes.size(), false) {
    for (size_t n = 0; n < nodes.size(); ++n)
      for (TensorId t : nodes[n].members) node_of_[t] = n;
  }

  DataflowGraph run() {
    for (TensorId t : p_.inputs) op_of_[t] = add(t, {.name = p_.tensors[t].name, .form = DataflowOp::Form::parameter});
    for (const Definition& d : p_.definitions()) emit(d);
    for (TensorId t : p_.outputs)
      if (op_of_[t] != SIZE_MAX && std::ranges::find(g_.results, op_of_[t]) == g_.results.end()) g_.results.push_back(op_of_[t]);
    return std::move(g_);
  }

 private:
  size_t add(TensorId t, DataflowOp op) {
    for (Id e : p_.tensors[t].shape) op.shape.push_back(print(p_, e));
    g_.ops.push_back(std::move(op));
    return g_.ops.size() - 1;
  }

  // Adds the definition's op, after the ops that it reads.
  void emit(const Definition& d) {
    if (op_of_[d.target()] != SIZE_MAX) return;
    const size_t n = node_of_[d.target()];
    if (n != SIZE_MAX) return emit_node(n);
    DataflowOp op{.name = p_.tensors[d.target()].name, .kind = fusion::kind_of(p_, d)};
    for (TensorId t : tensors_read(*p_.arena, d.body)) op.args.push_back(op_at(t));
    // A reshape or a copy computes nothing: the body is one read.
    op.only_reshapes = is_read((*p_.arena)[d.body].op) && op.kind == OpKind::injective;
    op_of_[d.target()] = add(d.target(), std::move(op));
  }

  void emit_node(size_t n) {
    if (open_[n]) throw Bug("dataflow: node " + nodes_[n].name + " needs itself");
    open_[n] = true;
    DataflowOp op{.name = nodes_[n].name, .kind = OpKind::opaque};
    for (TensorId t : nodes_[n].members)
      for (TensorId read : tensors_read(*p_.arena, uses_.definition(t)->body)) {
        if (node_of_[read] == n) continue;
        const size_t arg = op_at(read);
        if (std::ranges::find(op.args, arg) == op.args.end()) op.args.push_back(arg);
      }
    const size_t made = add(nodes_[n].members.back(), std::move(op));
    for (TensorId t : nodes_[n].members) op_of_[t] = made;
  }

  size_t op_at(TensorId t) {
    if (op_of_[t] == SIZE_MAX) emit(*uses_.definition(t));
    return op_of_[t];
  }

  const Program& p_;
  const Uses uses_{p_};
  const std::vector<DataflowNode>& nodes_;
  DataflowGraph g_;
  std::vector<size_t> op_of_, node_of_;  // by tensor
  std::vector<bool> open_;
};

}  // namespace

DataflowGraph dataflow(const Program& p) { return dataflow(p, {}); }
DataflowGraph dataflow(const Program& p, const std::vector<DataflowNode>& nodes) { return Builder(p, nodes).run(); }

DataflowNode convex(const Program& p, DataflowNode node) {
  std::set<TensorId> members(node.members.begin(), node.members.end()), below = members, above = members;
  auto reads = [&](const Definition& d) { return tensors_read(*p.arena, d.body); };
  const auto definitions = p.definitions();
  for (const Definition& d : definitions)
    if (std::ranges::any_of(reads(d), [&](TensorId t) { return below.contains(t); })) below.insert(d.target());
  for (const Definition& d : definitions | std::views::reverse)
    if (above.contains(d.target()))
      for (TensorId t : reads(d)) above.insert(t);
  node.members.clear();
  for (const Definition& d : definitions)
    if (below.contains(d.target()) && above.contains(d.target())) node.members.push_back(d.target());
  return node;
}

}  // namespace xhat::fusion
