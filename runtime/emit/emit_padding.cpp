// Reads at places that may be outside, of inputs or of what the tile has made: from a copy of what the tile needs with what `else` says
// around it, so that windows are read in plain vectors.
#include <cmath>
#include <unordered_set>

#include "cse/normalize/auto_inliner.h"
#include "expr/index/linear.h"
#include "runtime/emit/emit_ops.h"
#include "runtime/emit/emit_walk.h"

namespace xhat::runtime {
namespace {

constexpr int kOutside = -1;              // of a row
constexpr int64_t kComputedOnce_ps = 30;  // about a product

}  // namespace

// The axis of the tile that a dimension of what is made here is cut along, if it is: there it is read at the axis itself.
Id Walk::cut_along(const Node& read, size_t dimension) const {
  auto axes_of = e.left_axes.find(read.symbol);
  if (axes_of == e.left_axes.end()) return kNone;
  const Id x = axes_of->second[dimension];
  return e.spec.axes.at(x).kind() == AxisKind::untiled ? kNone : x;
}

// At places that axes alone tell and that lie as densely as they are read; some of it outside, or of what is computed there, each place read often.
bool Walk::worth_padding(const Node& n, bool computed) const {
  constexpr double kOften = 4;
  const SpecTensor& t = e.spec.tensors[n.symbol];
  if (e.made.contains(n.symbol) && !e.padding->of_made) return false;
  bool outside = false;
  double copied = 1, read = 1;
  auto ids = read_indices(n);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (cut_along(n, i) != kNone) continue;
    outside |= !is_within(ids[i], t.shape[i]);
    if (!tensors_read(arena(), ids[i]).empty()) return false;
    for (Id id : arena()[ids[i]].free_axes()) read *= static_cast<double>(e.spec.axes.at(id).in_tile());
    copied *= e.spec.places_in_tile(ids[i]);
  }
  bool known = n.op == Op::read || arena()[n.args().back()].op == Op::constant;
  return known && ((outside && copied <= 2 * read) || (computed && kOften * copied <= read));
}

Expr Walk::padded(const Node& n) {
  Id otherwise = n.op == Op::read_or ? n.args().back() : kNone;
  return copied(e.padding->funcs[{n.symbol, otherwise}], {&n, 1},
                [&](Walk& walk, const std::vector<Expr>& place) { return walk.load_inside(n, place); });
}

// f at the place where n reads, made if it is not yet: of what `value` says for each place of the input.
template <class Value>
Expr Walk::copied(Halide::Func& f, std::span<const Node> reads, Value value) {
  const Node& n = reads[0];
  auto ids = read_indices(n);
  if (!f.defined()) {
    Emitter inside_out = e;
    inside_out.padding = nullptr;
    inside_out.mostly_inside = true;
    Walk walk{inside_out, axes};
    std::vector<Expr> place;
    for (size_t d = 0; d < ids.size(); ++d) place.push_back(Halide::Var("p" + std::to_string(d)));
    size_t made = e.padding->funcs.size() + e.padding->values.size();
    f = Halide::Func("xh_pad" + std::to_string(n.symbol) + "_" + std::to_string(made));
    const Id vectors = e.padding->along;
    if (vectors != kNone && !arena()[ids.back()].depends_on(vectors))
      for (size_t d = 1; d < ids.size(); ++d)
        if (arena()[ids[ids.size() - 1 - d]].depends_on(vectors)) e.padding->innermost.emplace(f.name(), d);
    if (whole_rows(reads)) {
      const auto [left, right] = beyond_the_row(n.symbol);
      const int length = static_cast<int>(e.spec.tensors[n.symbol].shape.back());
      const std::vector<Expr> at = place;
      Halide::RDom ends(0, left + right, "xh_ends"), row(0, length, "xh_row");
      const Expr end = Halide::select(ends.x < left, ends.x - left, ends.x - left + length);
      const bool borders = std::ranges::any_of(reads, [&](const Node& read) { return border_of(read) != nullptr; });
      place[0] = borders ? end : Expr(kOutside);
      const Expr outside = value(walk, place);
      place[0] = end;
      f(at) = Halide::undef(outside.type());
      if (left + right > 0) f(place) = outside;
      place[0] = row.x;
      Walk along{inside_out, axes};
      f(place) = value(along, place);
      e.padding->rows[f.name()] = length;
    } else {
      f(place) = value(walk, place);
    }
  }
  e.padding->used.insert(f.name());
  std::vector<Expr> args;
  for (size_t i = ids.size(); i-- > 0;) args.push_back(cut_along(n, i) != kNone ? axes.at(ids[i]) : index(ids[i]));
  return f(args);
}

// Every tile reads whole rows, and beyond their ends: only these are filled, then what is inside is copied, both in plain vectors.
// Chosen lane by lane the two ends of a row of 56 are gathers, and take as long as a window of nine taps: a depthwise
// convolution took 0.93 ms instead of 0.82, its gradients 2.5 instead of 2.1.
bool Walk::whole_rows(std::span<const Node> reads) const {
  const Id last = read_indices(reads[0]).back();
  const auto [low, high] = e.spec.interval(last);
  auto length = [&](const Node& n) { return e.spec.tensors[n.symbol].shape.back(); };
  auto reaches_over = [&](const Node& n) { return length(n) == length(reads[0]) && 2 * (high - low) >= length(n); };
  return std::ranges::all_of(reads, reaches_over) && std::ranges::all_of(arena()[last].free_axes(), [&](Id x) {
           const SpecAxis& its = e.spec.axes.at(x);
           return its.kind() == AxisKind::untiled && its.static_extent;
         });
}

// How far the kernel reads beyond the ends of this tensor's rows from copies. Places that are computed from data, or are far away for
// other reasons, are never read from one.
std::pair<int, int> Walk::beyond_the_row(uint32_t tensor) const {
  int64_t left = 0, right = 0;
  for (const SpecMember& m : e.spec.members)
    for (Id id : reachable(arena(), std::vector<Id>{m.body, m.condition})) {
      const Node& n = arena()[id];
      if (!is_read(n.op) || n.symbol != tensor) continue;
      const auto [low, high] = e.spec.interval(read_indices(n).back());
      const int64_t length = e.spec.tensors[tensor].shape.back();
      const bool near = -low <= length + kFewTerms && high <= 2 * length + kFewTerms;
      if (!near && !worth_padding(n)) continue;
      left = std::max(left, -low);
      right = std::max(right, high + 1 - length);
    }
  return {static_cast<int>(left), static_cast<int>(right)};
}

// The index is an axis, whoever reads anything along that reads it at the axis itself, and whoever reads the tensor reads it there: one
// copy serves all reads of a tensor.
bool Walk::no_window_along(uint32_t tensor, size_t dimension, Id index) const {
  if (arena()[index].op != Op::axis) return false;
  return std::ranges::none_of(e.spec.members, [&](const SpecMember& m) {
    return std::ranges::any_of(reachable(arena(), std::vector<Id>{m.body, m.condition}), [&](Id id) {
      const Node& n = arena()[id];
      if (!is_read(n.op)) return false;
      auto ids = read_indices(n);
      if (n.symbol == tensor && ids[dimension] != index) return true;
      return std::ranges::any_of(ids, [&](Id i) { return i != index && arena()[i].depends_on(index); });
    });
  });
}

// What n reads, at any place.
Expr Walk::load_inside(const Node& n, const std::vector<Expr>& place) {
  const auto made = e.made.find(n.symbol);
  const std::vector<Bend>* border = border_of(n);
  const auto* variable = place[0].as<Halide::Internal::Variable>();
  const bool along_row = variable && variable->reduction_domain.defined();
  std::vector<Expr> args, extents;
  const auto ids = read_indices(n);
  for (size_t d = 0; d < ids.size(); ++d) {
    const size_t i = ids.size() - 1 - d;
    if (border && (*border)[i].at != kNone && !(d == 0 && along_row)) {
      args.push_back(bent((*border)[i], place[d], d == 0 ? e.spec.tensors[n.symbol].shape[i] : 0));
      extents.emplace_back();
      continue;
    }
    const Id cut = cut_along(n, i);
    if (cut != kNone && e.spec.axes.at(cut).kind() == AxisKind::point) continue;  // one element, which is no dimension
    args.push_back(place[d]);
    const int64_t shape = e.spec.tensors[n.symbol].shape[i];
    // Along the row copies are whole vectors.
    const bool within = cut != kNone || (d > 0 && is_within(ids[i], shape) && no_window_along(n.symbol, i, ids[i]));
    if (within)
      extents.emplace_back();
    else
      extents.push_back(made == e.made.end() ? e.inputs[n.symbol].dim(static_cast<int>(d)).extent() : Expr(static_cast<int32_t>(shape)));
  }
  if (along_row) extents[0] = Expr();
  Expr inside = clamp_to(args, extents);
  Expr loaded = made == e.made.end() ? ops::element(e.inputs[n.symbol], args) : Expr(made->second(args));
  if (e.spec.tensors[n.symbol].type == DType::boolean) loaded = ops::boolean(loaded);
  return n.op == Op::read_or && !border && inside.defined() ? chosen(inside, loaded, value(n.args().back())) : loaded;
}

// What is computed from inputs read at one place that moves with a window is computed once for each place of it, and not
// by all windows that it lies in. The reads; empty: there is nothing to gain.
std::vector<Id> Walk::reads_at_one_place(Id root) const {
  const Node& n = arena()[root];
  if (!e.padding || !e.values_once || is_read(n.op) || !is_float(n.type) || evaluation_cost_ps(arena(), root) < kComputedOnce_ps) return {};
  std::vector<Id> reads;
  for (Id id : reachable(arena(), root)) {
    const Node& x = arena()[id];
    if (e.given.contains(id)) return {};
    if (!is_read(x.op) || x.axes_count == 0) continue;
    bool alike = reads.empty() || std::ranges::equal(read_indices(arena()[reads[0]]), read_indices(x));
    alike = alike &&
            (reads.empty() || e.made.contains(arena()[reads[0]].symbol) == e.made.contains(x.symbol));  // places here begin with the tile
    if (!alike || !worth_padding(x, true)) return {};
    reads.push_back(id);
  }
  // Nothing but what is read there depends on the place.
  if (reads.empty() || !std::ranges::equal(arena()[root].free_axes(), arena()[reads[0]].free_axes())) return {};
  return uses_axes_itself(root) ? std::vector<Id>{} : reads;
}

bool Walk::uses_axes_itself(Id root) const {
  std::vector<Id> stack = {root};
  std::unordered_set<Id> seen;
  while (!stack.empty()) {
    Id id = stack.back();
    stack.pop_back();
    const Node& n = arena()[id];
    if (n.op == Op::axis) return true;
    if (is_read(n.op) || !seen.insert(id).second) continue;
    for (Id x : n.args()) stack.push_back(x);
  }
  return false;
}

Expr Walk::computed_once(Id root, const std::vector<Id>& ids) {
  std::vector<Node> reads;
  for (Id id : ids) reads.push_back(arena()[id]);
  return copied(e.padding->values[root], reads, [&](Walk& walk, const std::vector<Expr>& place) {
    for (size_t i = 0; i < ids.size(); ++i) walk.values[ids[i]] = walk.load_inside(reads[i], place);
    return walk.value(root);
  });
}

Expr Emitter::padded(Id read, const Axes& axes) const {
  Walk walk{*this, axes};
  return walk.padded((*spec.arena)[read]);
}

Expr Emitter::padded_value(Id root, const std::vector<Id>& reads, const Axes& axes) const {
  Walk walk{*this, axes};
  return walk.computed_once(root, reads);
}

}  // namespace xhat::runtime
