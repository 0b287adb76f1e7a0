// Values that are read along one axis and written, or wanted in vectors, along another: y[i,j] = x[j,i], or a transposed operand
// of a product. They are computed a square at a time, in vectors along the axis of what is read, and turned over by shuffles:
//
//   for each square of [along][v]:  for each v (unrolled):  square[v] = value, a vector along `along`
//                                   for each along (unrolled):  f = …square…, a vector along v
//
// Halide 21 makes shuffles of stores with a stride that an unrolled loop fills (Interleave.cpp), so the square is stored turned.
// 1024x1024 floats, one thread: 4.1 ns an element by gathers, 0.5 so.
#include <algorithm>
#include <set>

#include "cse/normalize/auto_inliner.h"
#include "runtime/cpu/lowering.h"

namespace xhat::runtime {
namespace {

constexpr int kTurnedSide = 8;  // LLVM makes 61 instructions of 8x8, 434 of 16x16 (permutations of two vectors, eleven to a result)
constexpr int64_t kMaxInSquare_ps = 400;  // of arithmetic, as it is unrolled; else only what it reads is turned

}  // namespace

Lowering::Turned Lowering::turned(const std::vector<Id>& roots, Id v, DType type, bool padded) const {
  Arena& a = *spec_.arena;
  const int width = std::min(kTurnedSide, natural(type));
  // Of an axis of which tiles take a part, the code does not know how much; the planner gives whole vectors where it can.
  auto long_enough = [&](Id x) {
    const SpecAxis& its = axis(x);
    return its.kind() == AxisKind::tiled || (its.kind() == AxisKind::untiled && !its.unrolled && its.extent >= width);
  };
  if (!vectors_ || v == kNone || !long_enough(v)) return {};
  // The axis that a read goes along, if not v; kNone: it goes along v, or nobody knows.
  auto goes_along = [&](Id id) {
    const Node& n = a[id];
    if ((n.op != Op::read && !(padded && n.op == Op::read_or)) || !a[id].depends_on(v) || read_indices(n).empty()) return kNone;
    Id last = read_indices(n).back();
    if (a[last].depends_on(v)) return kNone;
    for (Id x : a[last].free_axes())
      if (long_enough(x) && step_along(a, last, x) == 1) return x;
    return kNone;
  };
  Turned t;
  t.v = v;
  for (Id id : reachable(a, roots))
    if (t.along == kNone) t.along = goes_along(id);
  if (t.along == kNone) return {};
  // Does all that depends on both axes go along the other, or nowhere?
  auto turns = [&](Id part) {
    bool any = false;
    for (Id id : reachable(a, part)) {
      if (!is_read(a[id].op) || !a[id].depends_on(v) || !a[id].depends_on(t.along)) continue;
      if (goes_along(id) != t.along) return false;
      any = true;
    }
    return any;
  };
  std::vector<Id> stack = roots;
  std::set<Id> seen;
  while (!stack.empty()) {
    Id id = stack.back();
    stack.pop_back();
    if (!seen.insert(id).second || !a[id].depends_on(v) || !a[id].depends_on(t.along)) continue;
    // Not a product: what adds it needs its factors, for one fma (emit.cpp).
    bool as_it_is = is_read(a[id].op) || (is_float(a[id].type) && a[id].op != Op::mul && evaluation_cost_ps(a, id) <= kMaxInSquare_ps);
    if (as_it_is && turns(id))
      t.parts.push_back(id);
    else if (!is_read(a[id].op))
      for (Id x : a[id].args()) stack.push_back(x);
  }
  return t;
}

// What the parts are, in the expression of a stage over the same variables.
void Lowering::choose_transposes(Turned& t, const std::vector<Var>& vars, const Emitter::Axes& inside) {
  if (t.parts.empty()) return;
  Emitter::Axes at = inside;
  // Squares are whole: beyond the last, the last again.
  for (Id x : {t.v, t.along})
    if (!constant(x)) at[x] = Halide::min(Halide::likely(vars_.at(x)), extent(x) - 1);
  std::vector<Expr> values;
  for (Id part : t.parts) values.push_back(emit_.value(part, at));
  for (size_t i = 0; i < t.parts.size(); ++i) {
    Func square(name("square", static_cast<size_t>(squares_++)));
    define(square, exprs(vars), {values[i]});
    t.reads.push_back(square(exprs(vars)));
    emit_.given[t.parts[i]] = t.reads.back();
    t.squares.push_back(square);
  }
}

void Lowering::turn(const Turned& t, Func f, int vector) const {
  const int width = std::min(kTurnedSide, vector);
  Var v = vars_.at(t.v), x = vars_.at(t.along), vo("sq_vo"), vi("sq_vi"), xo("sq_xo"), xi("sq_xi");
  const bool whole = constant(t.along);
  f.split(v, vo, vi, width, constant(t.v) ? TailStrategy::ShiftInwards : TailStrategy::GuardWithIf)
      .split(x, xo, xi, width, whole ? TailStrategy::ShiftInwards : TailStrategy::GuardWithIf)
      .reorder(vi, xi, vo, xo)
      .vectorize(vi)
      .unroll(xi);
  for (Func square : t.squares)
    square.compute_at(f, vo).bound_extent(v, width).bound_extent(x, width).reorder(x, v).unroll(v).vectorize(x, width);
}

}  // namespace xhat::runtime
