// Reductions of a kernel; the kinds are listed in lower.cpp.
#include <algorithm>

#include "runtime/lowering.h"
#include "runtime/vector_math.h"

namespace xhat::runtime {
namespace {

constexpr int kLanes =
    64;  // accumulators of a row sum: 4 vectors of 16 keep two fma ports busy for 4 cycles each

}  // namespace

void Lowering::row_sum(const std::vector<size_t>& group, Id v) {
  const SpecMember& m = spec_.members[group[0]];
  DType type = widest(m);
  int width = natural(type);
  bool part = axis(v).kind() == AxisKind::part;
  int lanes = kLanes * 4 / static_cast<int>(byte_size(type));
  while (!part && lanes > width && axis(v).extent < 2 * lanes) lanes /= 2;
  Var u("u");
  std::vector<Var> left = func_vars(m), args = {u};
  args.insert(args.end(), left.begin(), left.end());

  Func acc(name("acc", m.tensor));
  std::vector<Expr> at = exprs(args);
  std::vector<Expr> init;
  for (size_t g : group)
    init.push_back(Emitter::identity(spec_.members[g].op, accumulated(spec_.members[g])));
  define(acc, at, init);

  // Full blocks of `lanes`, then what is left.
  Halide::Region region;
  std::vector<Id> others;
  Expr n = extent(v);
  for (size_t i = m.reduced.size(); i-- > 0;)
    if (m.reduced[i] != v) others.push_back(m.reduced[i]);
  auto domain = [&](Expr first) {
    std::vector<Halide::Range> ranges = {{0, first}};
    for (Id x : others) ranges.emplace_back(0, extent(x));
    return RDom(Halide::Region(ranges));
  };
  auto bind = [&](const RDom& r, Expr along) {
    Emitter::Axes axes = left_locals(m);
    axes[v] = along;
    for (size_t i = 0; i < others.size(); ++i) axes[others[i]] = r[static_cast<int>(i) + 1];
    return axes;
  };
  RDom blocks = domain(n / lanes);
  define(acc, at, steps(group, acc, at, bind(blocks, blocks[0] * lanes + u), blocks));
  bool tail = part || axis(v).extent % lanes != 0;
  RDom rest;
  if (tail) {
    rest = domain(n % lanes);
    std::vector<Expr> in_tail = at;
    in_tail[0] = rest[0];
    define(acc, in_tail, steps(group, acc, in_tail, bind(rest, (n / lanes) * lanes + rest[0]), rest));
  }
  acc.bound(u, 0, lanes).vectorize(u, width).unroll(u);
  std::vector<VarOrRVar> order = {u};
  for (int i = 0; i <= static_cast<int>(others.size()); ++i) order.push_back(RVar(blocks[i]));
  for (Var x : left) order.push_back(x);
  acc.update(0).reorder(order).vectorize(u, width).unroll(u);
  if (tail) acc.update(1).vectorize(RVar(rest[0]), width, TailStrategy::GuardWithIf);

  // Tree: lanes -> one vector, then pairs.
  Func one(name("vec", m.tensor));
  std::vector<Expr> folded;
  for (size_t i = 0; i < group.size(); ++i) {
    std::vector<Expr> parts;
    for (int l = 0; l < lanes; l += width) {
      std::vector<Expr> from = at;
      from[0] = u + l;
      parts.push_back(element(acc, from, i, group.size()));
    }
    folded.push_back(pairwise(spec_.members[group[i]].op, parts));
  }
  define(one, at, folded);
  one.bound(u, 0, width).vectorize(u, width);
  place_beside(acc, one, left);
  place(one);
  results_of(group, [&](size_t i) {
    std::vector<Expr> parts;
    for (int l = 0; l < width; ++l) {
      std::vector<Expr> from = at;
      from[0] = l;
      parts.push_back(element(one, from, i, group.size()));
    }
    return pairwise(spec_.members[group[i]].op, parts);
  });
}

void Lowering::place_beside(Func inner, Func outer, const std::vector<Var>& left) const {
  if (left.empty())
    inner.compute_root();
  else
    inner.compute_at(outer, left[0]);
}

Expr Lowering::pairwise(Op op, std::vector<Expr> parts) {
  while (parts.size() > 1) {
    std::vector<Expr> next;
    size_t half = parts.size() / 2;
    for (size_t i = 0; i < half; ++i) next.push_back(Emitter::combine(op, parts[i], parts[i + half]));
    if (parts.size() % 2) next.push_back(parts.back());
    parts = next;
  }
  return parts[0];
}

void Lowering::column_sum(const std::vector<size_t>& group, Id v) {
  const SpecMember& m = spec_.members[group[0]];
  std::vector<Var> left = func_vars(m);
  std::vector<Expr> at = exprs(left);
  Func acc(name("acc", m.tensor));
  std::vector<Expr> init;
  for (size_t g : group)
    init.push_back(Emitter::identity(spec_.members[g].op, accumulated(spec_.members[g])));
  define(acc, at, init);
  std::vector<Halide::Range> ranges;
  for (size_t i = m.reduced.size(); i-- > 0;) ranges.emplace_back(0, extent(m.reduced[i]));
  RDom r{Halide::Region(ranges)};
  Emitter::Axes axes = left_locals(m);
  for (size_t i = 0; i < m.reduced.size(); ++i)
    axes[m.reduced[m.reduced.size() - 1 - i]] = r[static_cast<int>(i)];
  define(acc, at, steps(group, acc, at, axes, r));
  bool vectors = v != kNone && std::ranges::find(m.left, v) != m.left.end();
  std::vector<VarOrRVar> order;
  if (vectors) order.push_back(vars_.at(v));
  for (int i = 0; i < r.dimensions(); ++i) order.push_back(RVar(r[i]));
  for (Var x : left)
    if (!vectors || x.name() != vars_.at(v).name()) order.push_back(x);
  if (order.size() > 1) acc.update(0).reorder(order);
  if (vectors) {
    order_rows(acc, m, v);
    vectorize(acc, vars_.at(v), v, widest(m), 1);
    vectorize(acc.update(0), vars_.at(v), v, widest(m), 2);
  }
  place(acc);
  results_of(group, [&](size_t i) { return element(acc, at, i, group.size()); });
}

void Lowering::scatter(const SpecMember& m) {
  std::vector<Var> left = func_vars(m);
  Func acc(name("acc", m.tensor));
  acc(left) = Emitter::identity(m.op, accumulated(m));
  std::vector<Halide::Range> ranges;
  for (size_t i = m.reduced.size(); i-- > 0;) ranges.emplace_back(0, extent(m.reduced[i]));
  RDom r{Halide::Region(ranges)};
  Emitter::Axes axes = left_locals(m);
  for (size_t i = 0; i < m.reduced.size(); ++i)
    axes[m.reduced[m.reduced.size() - 1 - i]] = r[static_cast<int>(i)];
  std::vector<Expr> at;
  std::vector<Var> pure;
  auto dims = tile_dimensions(spec_, m);
  for (size_t i = dims.size(); i-- > 0;) {
    pure.push_back(vars_.at(m.left[dims[i]]));
    at.push_back(pure.back());
  }
  for (auto& [left_axis, index] : m.scatter) {
    // Every tile goes over all of the reduction and takes what falls into it; indices were checked before the call.
    Id x = m.left[left_axis];
    Expr place_in_tile = emit_.local_index(index, x, axes);
    if (axis(x).kind() != AxisKind::whole) r.where(place_in_tile >= 0 && place_in_tile < extent(x));
    auto dim = std::ranges::find(dims, left_axis);
    if (dim == dims.end()) continue;
    size_t position = static_cast<size_t>(dims.end() - dim) - 1;
    Expr last = extent(x) - 1;
    at[position] = Halide::unsafe_promise_clamped(Halide::clamp(place_in_tile, 0, last), 0, last);
    std::erase_if(pure, [&](const Var& v) { return v.name() == vars_.at(x).name(); });
  }
  Expr next = emit_.step(m, acc(at), axes);
  mention(r, next);
  acc(at) = next;
  if (!pure.empty()) {
    Id v = kNone;
    for (Id x : m.left)
      if (vars_.at(x).name() == pure[0].name()) v = x;
    std::vector<VarOrRVar> order = {pure[0]};
    for (int i = 0; i < r.dimensions(); ++i) order.push_back(RVar(r[i]));
    for (size_t i = 1; i < pure.size(); ++i) order.push_back(pure[i]);
    acc.update(0).reorder(order);
    vectorize(acc.update(0), pure[0], v, widest(m), 1);
  }
  place(acc);
  results_of({static_cast<size_t>(&m - spec_.members.data())}, [&](size_t) { return Expr(acc(left)); });
}

void Lowering::extreme_index(const SpecMember& m) {
  std::vector<Var> left = func_vars(m);
  Func acc(name("acc", m.tensor));
  DType type = accumulated(m);
  Emitter::Axes axes = left_locals(m);
  acc(left) = Halide::Tuple(Halide::Internal::make_zero(storage_type(type)), Expr(-1));
  RDom r(0, extent(m.reduced[0]));
  axes[m.reduced[0]] = r.x;
  Expr v = emit_.value(m.body, axes), best = acc(left)[0], where = acc(left)[1];
  if (v.type().is_bool()) v = Halide::cast<uint8_t>(v);
  Expr better = m.op == Op::argmax ? v > best : v < best;
  if (is_float(type)) better = (better || vmath::is_nan(v)) && !vmath::is_nan(best);
  better = where < 0 || better;
  if (!is_true(*spec_.arena, m.condition)) better = better && emit_.condition(m.condition, axes);
  acc(left) = Halide::Tuple(Halide::select(better, v, best), Halide::select(better, Expr(r.x), where));
  place(acc);
  results_of({static_cast<size_t>(&m - spec_.members.data())},
             [&](size_t) { return Halide::cast<int64_t>(acc(left)[1]); });
}

}  // namespace xhat::runtime
