// Reductions, and what is made of them.
#include <fmt/format.h>

#include <cmath>

#include "expr/core/scalar.h"
#include "runtime/lazy/functions.h"
#include "runtime/lazy/state.h"

namespace xhat::lazy {

using namespace detail;

namespace {

std::vector<int64_t> reduced(const Axes& axes, size_t rank, const Site& site) {
  std::vector<int64_t> which;
  if (axes.every())
    for (size_t d = 0; d < rank; ++d) which.push_back(static_cast<int64_t>(d));
  for (int a : axes.axes()) which.push_back(static_cast<int64_t>(axis_of(a, rank, site)));
  std::ranges::sort(which);
  if (std::ranges::adjacent_find(which) != which.end()) fail(site, "a dimension stands twice");
  return which;
}

Shape without(const Shape& shape, const std::vector<int64_t>& axes, bool keep) {
  Shape rest;
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool gone = std::ranges::find(axes, static_cast<int64_t>(d)) != axes.end();
    if (!gone || keep) rest.push_back(gone ? 1 : shape[d]);
  }
  return rest;
}

// The reduction of n equal numbers.
NodePtr of_constant(Op op, const NodePtr& x, int64_t count, const Shape& shape) {
  if (count == 0)
    return is_float(x->type) ? constant(x->type, identity_of(op), shape) : constant_integer(x->type, identity_of(op, x->type), shape);
  NodePtr n = pooled<Node>(*x);
  n->shape = shape;
  n->weak = false;
  if (op == Op::sum) n->value = round_to(x->type, x->value * static_cast<double>(count)), n->integer = x->integer * count;
  if (op == Op::prod && is_float(x->type)) n->value = round_to(x->type, std::pow(x->value, static_cast<double>(count)));
  if (op == Op::prod && !is_float(x->type)) {
    const int64_t operands[2] = {x->integer, count};
    n->integer = scalar(Op::pow).integers.at(operands);
  }
  return n;
}

// keep is done by a reshape, which is free.
Array finish(const NodePtr& x, const Shape& from, const std::vector<int64_t>& axes, bool keep) {
  return of_node(keep ? moved(x, Kind::reshape, without(from, axes, true), {}) : x);
}

Array reduction(Op op, const Array& array, const Axes& wanted, bool keep, const Site& site) {
  NodePtr x = node_of(array);
  const Shape from = x->shape;
  const std::vector<int64_t> axes = reduced(wanted, from.size(), site);
  const bool logic = op == Op::any || op == Op::all, total = op == Op::sum || op == Op::prod;
  if (logic && x->type != DType::boolean) x = elementwise(Op::ne, {x, constant(x->type, 0)}, site);
  if (!logic && (x->type == DType::boolean || (total && is_integer(x->type)))) x = cast_node(x, DType::i64);
  int64_t count = 1;
  for (int64_t a : axes) count *= from[static_cast<size_t>(a)];
  const Shape shape = without(from, axes, false);
  if (axes.empty()) return of_node(x);
  if (count == 1 && from.size() > 0) return of_node(moved(x, Kind::reshape, without(from, axes, keep), {}));
  if (x->kind == Kind::constant) return finish(of_constant(op, x, count, shape), from, axes, keep);
  NodePtr n = make(Kind::reduce, x->type, shape, {x}, axes);
  n->op = op;
  return finish(n, from, axes, keep);
}

Array position(Op op, const Array& array, const Axes& wanted, bool keep, const Site& site) {
  const NodePtr& x = node_of(array);
  const Shape from = x->shape;
  const std::vector<int64_t> axes = reduced(wanted, from.size(), site);
  if (from.elements() == 0) fail(site, fmt::format("there is no extreme among the elements of shape {}", text(from)));
  if (axes.size() != 1 && axes.size() != from.size()) fail(site, "takes one dimension, or all of them");
  NodePtr over = axes.size() == 1 ? x : moved(x, Kind::reshape, {from.elements()}, {});
  if (over->shape.empty()) over = moved(over, Kind::reshape, {1}, {});
  if (over->type == DType::boolean) over = cast_node(over, DType::i32);
  const std::vector<int64_t> one = {axes.size() == 1 ? axes[0] : 0};
  const Shape shape = without(over->shape, one, false);
  NodePtr n = make(Kind::reduce, DType::i64, shape, {over}, one);
  n->op = op;
  if (over->kind == Kind::constant) n = constant_integer(DType::i64, 0, shape);
  return finish(n, from, axes, keep);
}

}  // namespace

Array sum(const Array& x, const Axes& axes, bool keep, const Location& at) { return reduction(Op::sum, x, axes, keep, {"sum", at}); }
Array prod(const Array& x, const Axes& axes, bool keep, const Location& at) { return reduction(Op::prod, x, axes, keep, {"prod", at}); }
Array max(const Array& x, const Axes& axes, bool keep, const Location& at) { return reduction(Op::max, x, axes, keep, {"max", at}); }
Array min(const Array& x, const Axes& axes, bool keep, const Location& at) { return reduction(Op::min, x, axes, keep, {"min", at}); }
Array any(const Array& x, const Axes& axes, bool keep, const Location& at) { return reduction(Op::any, x, axes, keep, {"any", at}); }
Array All::operator()(const Array& x, const Axes& axes, bool keep, const Location& at) const {
  return reduction(Op::all, x, axes, keep, {"all", at});
}
Array argmax(const Array& x, const Axes& axes, bool keep, const Location& at) {
  return position(Op::argmax, x, axes, keep, {"argmax", at});
}
Array argmin(const Array& x, const Axes& axes, bool keep, const Location& at) {
  return position(Op::argmin, x, axes, keep, {"argmin", at});
}

Array mean(const Array& x, const Axes& axes, bool keep, const Location& at) {
  const Site site{"mean", at};
  const NodePtr n = is_float(node_of(x)->type) ? node_of(x) : cast_node(node_of(x), DType::f32);
  const std::vector<int64_t> which = reduced(axes, n->shape.size(), site);
  if (n->kind == Kind::constant) return finish(moved(n, Kind::reshape, without(n->shape, which, false), {}), n->shape, which, keep);
  const Array total = reduction(Op::sum, of_node(n), axes, keep, site);
  // The number of elements is not written as a number, so that another batch is the same program.
  const NodePtr count = make(Kind::size_of, n->type, {}, {n}, which);
  return of_node(elementwise(Op::div, {node_of(total), count}, site));
}

Array softmax(const Array& x, int axis, const Location& at) {
  const Array e = exp(x - max(x, axis, keepdim, at), at);
  return e / sum(e, axis, keepdim, at);
}

Array log_softmax(const Array& x, int axis, const Location& at) {
  const Array centred = x - max(x, axis, keepdim, at);
  return centred - log(sum(exp(centred, at), axis, keepdim, at), at);
}

}  // namespace xhat::lazy
