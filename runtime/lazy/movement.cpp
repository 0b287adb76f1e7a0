// Movement: index maps. A view is made where every element of the result is one of the operand; others (pad, concat, take) are values.
#include <fmt/format.h>

#include <numeric>

#include "runtime/lazy/functions.h"
#include "runtime/lazy/movement.h"
#include "runtime/lazy/state.h"

namespace xhat::lazy {
namespace detail {

size_t axis_of(int64_t axis, size_t rank, const Site& site) {
  const auto n = static_cast<int64_t>(rank);
  if (axis < -n || axis >= n) fail(site, fmt::format("there is no dimension {} in an array of {} dimensions", axis, n));
  return static_cast<size_t>(axis < 0 ? axis + n : axis);
}

NodePtr moved(const NodePtr& x, Kind kind, const Shape& shape, Params params) {
  if (x->kind == Kind::constant) {
    NodePtr n = pooled<Node>(*x);
    n->shape = shape;
    n->weak = x->weak && shape.empty();
    return n;
  }
  switch (kind) {
    case Kind::reshape:
      if (x->shape == shape) return x;
      if (x->kind == Kind::iota) return iota(shape);
      if (x->kind == Kind::reshape) return moved(x->args[0], Kind::reshape, shape, {});
      break;
    case Kind::expand:
      if (x->shape == shape) return x;
      if (x->kind == Kind::expand) return moved(x->args[0], Kind::expand, shape, {});
      break;
    case Kind::permute: {
      if (x->kind == Kind::permute) {
        Params both;
        for (int64_t d : params) both.push_back(x->params[static_cast<size_t>(d)]);
        return moved(x->args[0], Kind::permute, shape, both);
      }
      if (std::ranges::is_sorted(params)) return x;
      break;
    }
    case Kind::slice: {
      bool whole = true;
      for (size_t d = 0; d < shape.size(); ++d) whole &= params[3 * d] == 0 && params[3 * d + 1] == 1 && shape[d] == x->shape[d];
      if (whole) return x;
      break;
    }
    default: break;
  }
  return make(kind, x->type, shape, {x}, std::move(params));
}

SliceStep slice_step(const Params& params, size_t d, int64_t extent) {
  const int64_t begin = params[3 * d];
  return {begin < 0 ? begin + extent : begin, params[3 * d + 1], begin < 0, params[3 * d + 2] != 0};
}

bool step_view(TensorView& v, Kind kind, const Shape& shape, const Params& params) {
  const TensorView from = v;
  const size_t width = byte_size(v.type);
  v.rank = static_cast<int>(shape.size());
  std::ranges::copy(shape, v.shape.begin());
  switch (kind) {
    case Kind::permute:
      for (size_t d = 0; d < shape.size(); ++d) v.strides[d] = from.strides[static_cast<size_t>(params[d])];
      return true;
    case Kind::expand:
      for (size_t d = 0; d < shape.size(); ++d)
        if (from.shape[d] != shape[d]) v.strides[d] = 0;
      return true;
    case Kind::slice: {
      int64_t offset = 0;
      for (size_t d = 0; d < shape.size(); ++d) {
        const SliceStep s = slice_step(params, d, from.shape[d]);
        if (s.step < 0 && shape[d] > 1) return false;  // kernels take no negative strides
        offset += s.begin * from.strides[d];
        v.strides[d] = from.strides[d] * std::abs(s.step);
      }
      v.data = static_cast<char*>(from.data) + offset * static_cast<int64_t>(width);
      return true;
    }
    case Kind::reshape: {
      // Dimensions of one element aside, those of the operand are split or joined where its memory is contiguous.
      size_t i = 0, j = 0;
      const auto n = static_cast<size_t>(from.rank);
      while (i < n || j < shape.size()) {
        if (i < n && from.shape[i] == 1) {
          ++i;
          continue;
        }
        if (j < shape.size() && shape[j] == 1) {
          v.strides[j++] = 1;
          continue;
        }
        if (i == n || j == shape.size()) return false;
        const size_t i0 = i, j0 = j;
        int64_t a = from.shape[i++], b = shape[j++];
        while (a != b) {
          if (a < b && i < n)
            a *= from.shape[i++];
          else if (b < a && j < shape.size())
            b *= shape[j++];
          else
            return false;
        }
        int64_t step = 0;
        for (size_t k = i; k-- > i0;) {
          if (from.shape[k] == 1) continue;
          if (step != 0 && from.strides[k] != step) return false;
          if (step == 0) v.strides[j - 1] = from.strides[k];
          step = from.strides[k] * from.shape[k];
        }
        for (size_t k = j - 1; k > j0; --k) v.strides[k - 1] = v.strides[k] * shape[k];
      }
      return true;
    }
    default: return false;
  }
}

std::optional<TensorView> alias_of(const Node& n) {
  if (n.kind == Kind::leaf) return n.storage->view;
  if (!is_movement(n.kind)) return std::nullopt;
  auto v = alias_of(*n.args[0]);
  if (!v || !step_view(*v, n.kind, n.shape, n.params)) return std::nullopt;
  return v;
}

}  // namespace detail

using namespace detail;

Array reshape(const Array& x, const Shape& wanted, const Location& at) {
  const Site site{"reshape", at};
  const Shape from = node_of(x)->shape;
  Shape shape = wanted;
  int64_t known = 1;
  int open = 0;
  for (int64_t e : shape) {
    if (e < -1) fail(site, fmt::format("{} has a negative extent", text(shape)));
    if (e == -1)
      ++open;
    else
      known *= e;
  }
  if (open > 1) fail(site, fmt::format("{} leaves more than one extent open", text(wanted)));
  if (open == 1)
    for (int64_t& e : std::span(&shape[0], shape.size()))
      if (e == -1) e = known == 0 ? 0 : from.elements() / known;
  if (shape.elements() != from.elements())
    fail(site, fmt::format("{} has {} elements, and {} has {}", text(from), from.elements(), text(wanted), shape.elements()));
  return shape == from ? x : view_of(x, Kind::reshape, shape, {});
}

Array permute(const Array& x, const std::vector<int>& order, const Location& at) {
  const Site site{"permute", at};
  const Shape from = node_of(x)->shape;
  if (order.size() != from.size()) fail(site, fmt::format("an order of {} dimensions for shape {}", order.size(), text(from)));
  Shape shape;
  Params params;
  for (int d : order) {
    const size_t axis = axis_of(d, from.size(), site);
    if (std::ranges::find(params, static_cast<int64_t>(axis)) != params.end()) fail(site, fmt::format("dimension {} stands twice", d));
    params.push_back(static_cast<int64_t>(axis));
    shape.push_back(from[axis]);
  }
  return std::ranges::is_sorted(params) ? x : view_of(x, Kind::permute, shape, params);
}

Array transpose(const Array& x, int i, int j, const Location& at) {
  const size_t rank = node_of(x)->shape.size();
  const Site site{"transpose", at};
  if (rank < 2) fail(site, fmt::format("shape {} has no two dimensions to exchange", text(node_of(x)->shape)));
  std::vector<int> order(rank);
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[axis_of(i, rank, site)], order[axis_of(j, rank, site)]);
  return permute(x, order, at);
}

Array expand(const Array& x, const Shape& wanted, const Location& at) {
  const Site site{"expand", at};
  const Shape from = node_of(x)->shape;
  if (wanted.size() < from.size()) fail(site, fmt::format("{} has fewer dimensions than {}", text(wanted), text(from)));
  Shape shape = wanted, same_rank;
  const size_t added = wanted.size() - from.size();
  for (size_t d = 0; d < wanted.size(); ++d) {
    const int64_t have = d < added ? 1 : from[d - added];
    if (shape[d] == -1) shape[d] = have;
    if (have != 1 && have != shape[d])
      fail(site, fmt::format("shape {} does not expand to {}: only extents of 1 can change", text(from), text(wanted)));
    same_rank.push_back(have);
  }
  const Array ranked = reshape(x, same_rank, at);
  return shape == same_rank ? ranked : view_of(ranked, Kind::expand, shape, {});
}

Array flip(const Array& x, const Axes& axes, const Location& at) {
  const Shape shape = node_of(x)->shape;
  std::vector<int64_t> steps(shape.size(), axes.every() ? -1 : 1);
  for (int a : axes.axes()) steps[axis_of(a, shape.size(), {"flip", at})] = -1;
  return stride(x, steps, at);
}

Array stride(const Array& x, const std::vector<int64_t>& steps, const Location& at) {
  const Site site{"stride", at};
  const Shape from = node_of(x)->shape;
  if (steps.size() != from.size()) fail(site, fmt::format("{} steps for shape {}", steps.size(), text(from)));
  Shape shape;
  Params params;
  for (size_t d = 0; d < steps.size(); ++d) {
    const int64_t step = std::abs(steps[d]);
    if (step == 0) fail(site, "a step of 0");
    shape.push_back((from[d] + step - 1) / step);
    params.append(std::initializer_list<int64_t>{steps[d] < 0 ? -1 : 0, steps[d], 1});
  }
  return view_of(x, Kind::slice, shape, params);
}

Array shrink(const Array& x, const Pairs& bounds, const Location& at) {
  const Shape from = node_of(x)->shape;
  if (bounds.size() != from.size()) fail({"shrink", at}, fmt::format("{} pairs of bounds for shape {}", bounds.size(), text(from)));
  std::vector<Slice> slices;
  for (auto [begin, end] : bounds) slices.push_back(Slice(range(begin, end)));
  return x.sliced(slices, at);
}

Array squeeze(const Array& x, const Location& at) {
  Shape shape;
  for (int64_t e : node_of(x)->shape)
    if (e != 1) shape.push_back(e);
  return reshape(x, shape, at);
}

Array squeeze(const Array& x, int axis, const Location& at) {
  const Site site{"squeeze", at};
  const Shape from = node_of(x)->shape;
  const size_t gone = axis_of(axis, from.size(), site);
  if (from[gone] != 1) fail(site, fmt::format("dimension {} of {} is not 1", axis, text(from)));
  Shape shape;
  for (size_t d = 0; d < from.size(); ++d)
    if (d != gone) shape.push_back(from[d]);
  return reshape(x, shape, at);
}

Array unsqueeze(const Array& x, int axis, const Location& at) {
  const Shape from = node_of(x)->shape;
  const size_t place = axis_of(axis, from.size() + 1, {"unsqueeze", at});
  Shape shape;
  for (size_t d = 0; d <= from.size(); ++d) {
    if (d == place) shape.push_back(1);
    if (d < from.size()) shape.push_back(from[d]);
  }
  return reshape(x, shape, at);
}

Array Array::sliced(std::span<const Slice> slices, const Location& at) const {
  const Site site{"slice", at};
  const Shape from = shape();
  if (slices.size() > from.size()) fail(site, fmt::format("{} subscripts for shape {}", slices.size(), text(from)));
  Shape counts, kept;
  Params params;
  for (size_t d = 0; d < from.size(); ++d) {
    const int64_t extent = from[d];
    const Slice s = d < slices.size() ? slices[d] : Slice(lazy::all);
    if (s.one) {
      if (s.range.begin < -extent || s.range.begin >= extent)
        fail(site, fmt::format("position {} of dimension {}, whose extent is {} in {}", s.range.begin, d, extent, text(from)));
      counts.push_back(1);
      params.append(std::initializer_list<int64_t>{s.range.begin, 1, 0});
      continue;
    }
    const int64_t step = s.range.step;
    const int64_t begin = s.range.begin < 0 ? s.range.begin + extent : s.range.begin;
    const int64_t end = s.range.open ? extent : s.range.end < 0 ? s.range.end + extent : s.range.end;
    if (step <= 0) fail(site, fmt::format("a step of {}; flip() and stride() go backwards", step));
    if (begin < 0 || begin > end || end > extent)
      fail(site, fmt::format("range [{}, {}) of dimension {}, whose extent is {} in {}", s.range.begin, s.range.open ? extent : s.range.end,
                             d, extent, text(from)));
    counts.push_back((end - begin + step - 1) / step);
    kept.push_back(counts.back());
    params.append(std::initializer_list<int64_t>{s.range.begin, step, end == extent ? 1 : 0});
  }
  const Array part = view_of(*this, Kind::slice, counts, params);
  return lazy::reshape(part, kept, at);
}

Array pad(const Array& x, const Pairs& padding, const Array& value, const Location& at) {
  const Site site{"pad", at};
  const NodePtr& n = node_of(x);
  const Shape& from = n->shape;
  if (padding.size() > from.size()) fail(site, fmt::format("{} pairs for shape {}", padding.size(), text(from)));
  Shape shape;
  Params params;
  const size_t untouched = from.size() - padding.size();
  for (size_t d = 0; d < from.size(); ++d) {
    const auto [before, after] = d < untouched ? std::pair<int64_t, int64_t>{0, 0} : padding[d - untouched];
    if (before < 0 || after < 0) fail(site, "negative padding; shrink() cuts off");
    shape.push_back(from[d] + before + after);
    params.append(std::initializer_list<int64_t>{before, after});
  }
  if (shape == from) return x;
  const NodePtr& v = node_of(value);
  if (!v->shape.empty()) fail(site, fmt::format("the value outside must be one number, and has shape {}", text(v->shape)));
  return of_node(make(Kind::pad, n->type, shape, {n, cast_node(v, n->type)}, params));
}

Array concat(const std::vector<Array>& parts, int axis, const Location& at) {
  const Site site{"concat", at};
  if (parts.empty()) fail(site, "nothing to join");
  NodeList nodes;
  Shape shape = node_of(parts[0])->shape;
  const size_t along = axis_of(axis, shape.size(), site);
  std::optional<DType> type;
  shape[along] = 0;
  for (const Array& part : parts) {
    const NodePtr& n = node_of(part);
    Shape rest = n->shape;
    if (rest.size() == shape.size()) rest[along] = shape[along];
    if (rest != shape)
      fail(site, fmt::format("shapes {} and {} differ in another dimension than {}", text(node_of(parts[0])->shape), text(n->shape), axis));
    shape[along] += n->shape[along];
    const auto both = type ? promote(*type, n->type) : n->type;
    if (!both) fail(site, fmt::format("parts of type {} and {}; cast one", name_of(*type), name_of(n->type)));
    type = both;
    if (n->shape[along] > 0) nodes.push_back(n);
  }
  if (nodes.size() == 1) return of_node(cast_node(nodes[0], *type));
  if (nodes.empty()) return full(shape, 0, *type);
  for (NodePtr& n : nodes) n = cast_node(n, *type);
  return of_node(make(Kind::concat, *type, shape, nodes, {static_cast<int64_t>(along)}));
}

std::vector<Array> split(const Array& x, const std::vector<int64_t>& sizes, int axis, const Location& at) {
  const Site site{"split", at};
  const Shape from = node_of(x)->shape;
  const size_t along = axis_of(axis, from.size(), site);
  std::vector<Array> parts;
  std::vector<Slice> slices(along + 1, Slice(all));
  int64_t begin = 0;
  for (int64_t size : sizes) {
    if (size < 0 || begin + size > from[along]) fail(site, fmt::format("sizes beyond the extent {} of dimension {}", from[along], axis));
    slices[along] = Slice(range(begin, begin + size));
    parts.push_back(x.sliced(slices, at));
    begin += size;
  }
  if (begin != from[along]) fail(site, fmt::format("sizes that add up to {}, for the extent {} of dimension {}", begin, from[along], axis));
  return parts;
}

std::vector<Array> split(const Array& x, int64_t size, int axis, const Location& at) {
  const Site site{"split", at};
  if (size <= 0) fail(site, fmt::format("pieces of {} elements", size));
  const int64_t extent = node_of(x)->shape[axis_of(axis, node_of(x)->shape.size(), site)];
  std::vector<int64_t> sizes;
  for (int64_t begin = 0; begin < extent; begin += size) sizes.push_back(std::min(size, extent - begin));
  return split(x, sizes, axis, at);
}

Array take(const Array& x, const Array& indices, int axis, const Location& at) {
  const Site site{"take", at};
  const NodePtr &n = node_of(x), &i = node_of(indices);
  const size_t along = axis_of(axis, n->shape.size(), site);
  if (!is_integer(i->type)) fail(site, fmt::format("indices must be integers, and are {}", name_of(i->type)));
  Shape shape;
  for (size_t d = 0; d < n->shape.size(); ++d) {
    if (d != along)
      shape.push_back(n->shape[d]);
    else
      for (int64_t e : i->shape) shape.push_back(e);
  }
  return of_node(make(Kind::take, n->type, shape, {n, i}, {static_cast<int64_t>(along)}));
}

Array gather(const Array& x, const Array& indices, int axis, const Location& at) {
  const Site site{"gather", at};
  const NodePtr &n = node_of(x), &i = node_of(indices);
  const size_t along = axis_of(axis, n->shape.size(), site);
  if (!is_integer(i->type)) fail(site, fmt::format("indices must be integers, and are {}", name_of(i->type)));
  bool fits = i->shape.size() == n->shape.size();
  for (size_t d = 0; fits && d < n->shape.size(); ++d) fits = d == along || i->shape[d] <= n->shape[d];
  if (!fits)
    fail(site, fmt::format("indices of shape {} for an array of shape {} along dimension {}", text(i->shape), text(n->shape), axis));
  return of_node(make(Kind::gather, n->type, i->shape, {n, i}, {static_cast<int64_t>(along)}));
}

}  // namespace xhat::lazy
