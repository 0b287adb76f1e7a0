// How much of each tensor a tile touches.
//
// A dimension that a bare axis runs along: the axis's elements in the tile. Any other dimension: the window its index
// sweeps while the axes run over their elements, x[i+r-1]: tile of i plus 2; a place that data decide, table[ids[b,l],d]:
// one row per point (b, l). Never more than there is.
#include <algorithm>
#include <cstdlib>

#include "fusion/plan/kernel_draft.h"

namespace xhat::fusion {
namespace {

int64_t part_of(int64_t points, double part) {
  return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(points) * std::min(1.0, part)));
}

}  // namespace

// An integer expression with the axes at given values. For planning only: what it does not know counts as 0.
int64_t Planner::value_at(Id e, const std::unordered_map<Id, int64_t>& axes) const {
  const Arena& a = *p_.arena;
  std::unordered_map<Id, int64_t> values;
  for (Id id : reachable(a, e)) {
    const Node& n = a[id];
    auto x = [&](size_t i) { return values.at(n.arg(i)); };
    int64_t v = 0;
    if (auto it = axes.find(id); it != axes.end()) v = it->second;
    else if (n.type != DType::i64 || is_read(n.op)) v = 0;
    else if (n.free_axes().empty()) v = extent(id);
    else if (n.op == Op::add) v = x(0) + x(1);
    else if (n.op == Op::sub) v = x(0) - x(1);
    else if (n.op == Op::neg) v = -x(0);
    else if (n.op == Op::mul) v = x(0) * x(1);
    else if (n.op == Op::minimum) v = std::min(x(0), x(1));
    else if (n.op == Op::maximum) v = std::max(x(0), x(1));
    else if (n.op == Op::div && x(1) != 0) v = x(0) / x(1);
    else if (n.op == Op::mod && x(1) != 0) v = x(0) % x(1);
    else if (n.op == Op::clamp) v = std::max(x(1), std::min(x(0), x(2)));
    values[id] = v;
  }
  return values.at(e);
}

// How many places an index visits while each axis runs over `points` elements.
int64_t Planner::reach(Id index, const std::unordered_map<Id, int64_t>& points) const {
  const Arena& a = *p_.arena;
  if (auto it = points.find(index); it != points.end()) return it->second;
  struct Span {
    int64_t width = 0;   // largest minus smallest value
    bool known = true;
  };
  std::unordered_map<Id, Span> spans;
  for (Id id : reachable(a, index)) {
    const Node& n = a[id];
    auto x = [&](size_t i) { return spans.at(n.arg(i)); };
    auto times = [&](size_t i, Id factor) {
      int64_t width = 0;
      if (__builtin_mul_overflow(x(i).width, std::abs(a[factor].integer), &width)) return Span{0, false};
      return Span{width, x(i).known};
    };
    auto constant = [&](size_t i) { return a[n.arg(i)].op == Op::constant && a[n.arg(i)].integer != 0; };
    Span s;
    if (auto it = points.find(id); it != points.end()) s = {it->second - 1, true};
    else if (n.free_axes().empty()) s = {0, true};
    else if (n.op == Op::add || n.op == Op::sub) s = {x(0).width + x(1).width, x(0).known && x(1).known};
    else if (n.op == Op::minimum || n.op == Op::maximum)
      s = {std::max(x(0).width, x(1).width), x(0).known && x(1).known};
    else if (n.op == Op::clamp) s = {x(0).width, x(0).known};
    else if (n.op == Op::neg || n.op == Op::cast) s = x(0);
    else if (n.op == Op::mul && constant(0)) s = times(1, n.arg(0));
    else if (n.op == Op::mul && constant(1)) s = times(0, n.arg(1));
    else if (n.op == Op::div && constant(1)) s = {x(0).width / std::abs(a[n.arg(1)].integer) + 1, x(0).known};
    else if (n.op == Op::mod && constant(1))
      s = {std::min(x(0).width, std::abs(a[n.arg(1)].integer) - 1), x(0).known};
    else s = {0, false};
    spans[id] = s;
  }
  if (spans.at(index).known) return spans.at(index).width + 1;
  int64_t all = 1;
  for (Id axis : a[index].free_axes())
    if (auto it = points.find(axis); it != points.end()) all *= it->second;
  return all;
}

// Per tensor and dimension: as far as the widest read of the draft's members goes in one tile.
std::map<TensorId, std::vector<int64_t>> Planner::windows(const Draft& draft, bool whole_tile) const {
  const Arena& a = *p_.arena;
  std::map<TensorId, std::vector<int64_t>> found;
  for (const Member& m : draft.members) {
    const Shape& s = shapes_[m.definition];
    std::unordered_map<Id, int64_t> points;
    for (size_t i = 0; i < s.axes.size(); ++i) {
      int c = i < s.left ? m.left[i] : m.reduced[i - s.left];
      // A range that depends on other axes wanders with them.
      bool wanders = !a[s.axes[i].begin].free_axes().empty();
      points[s.axes[i].axis] = in_tile(draft, c, whole_tile) + (wanders ? reach(s.axes[i].begin, points) - 1 : 0);
    }
    // A tile of segments has as large a part of all places, and one of places of all segments.
    auto points_of = [&](size_t i) -> int64_t& { return points[s.axes[i].axis]; };
    for (const Shape::Segments& of : s.segments) {
      double part = static_cast<double>(points_of(of.places)) / static_cast<double>(std::max<int64_t>(1, s.extents[of.places]));
      if (of.places < s.left) {
        points_of(of.by.back()) = part_of(points_of(of.by.back()), part);
        continue;
      }
      part = 1;
      for (size_t i : of.by) part *= static_cast<double>(points_of(i)) / static_cast<double>(std::max<int64_t>(1, s.extents[i]));
      points_of(of.places) = part_of(points_of(of.places), part);
    }
    for (Id r : s.reads) {
      auto indices = read_indices(a[r]);
      auto& window = found.try_emplace(a[r].symbol, std::vector<int64_t>(indices.size(), 0)).first->second;
      for (size_t i = 0; i < indices.size(); ++i) window[i] = std::max(window[i], reach(indices[i], points));
    }
  }
  return found;
}

// Elements of a class in one tile, or in one step of the outer loop.
int64_t Planner::in_tile(const Draft& draft, int c, bool whole_tile) const {
  const KernelAxis& axis = draft.axes[static_cast<size_t>(c)];
  if (axis.of >= 0) return axis.each * in_tile(draft, axis.of, whole_tile);
  if (!draft.shared[static_cast<size_t>(c)]) return std::max<int64_t>(1, axis.extent);
  return whole_tile ? std::max<int64_t>(1, axis.tile) : 1;
}

// Bytes one step of the outer loop touches; with whole_tile, at the tiles chosen, else at one element per shared axis.
int64_t Planner::footprint(const Draft& draft, bool whole_tile) const {
  auto read = windows(draft, whole_tile);
  int64_t total = 0;
  for (auto& [t, classes] : draft.dims) {
    int64_t n = static_cast<int64_t>(byte_size(p_.tensors[t].type));
    auto window = read.find(t);
    bool all = draft.producer.contains(t) || window == read.end();
    for (size_t i = 0; i < classes.size(); ++i) {
      bool tiled = classes[i] >= 0 && draft.walked(classes[i]);
      int64_t whole = extent(p_.tensors[t].shape[i]);
      n *= tiled ? in_tile(draft, classes[i], whole_tile) : all ? whole : std::min(whole, window->second[i]);
    }
    total += n;
  }
  return total;
}

}  // namespace xhat::fusion
