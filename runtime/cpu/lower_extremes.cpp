// Where an extreme is: the first place of the largest or smallest value, or of the first NaN.
//
// An accumulator is a value and its place. Along the vectors of results each lane has its own; along the axis itself every lane takes each
// n-th element, and of lanes that are equal the one with the first place counts. So the place does not depend on the lanes.
#include <algorithm>

#include "runtime/cpu/lowering.h"
#include "runtime/emit/first_extreme.h"

namespace xhat::runtime {
namespace {

constexpr int kPanel = 4;  // vectors of results at a time, and of lanes along the axis: 8 registers hold values and places
constexpr int kLastLanes = 4;
constexpr int kNowhere = -1;

using Found = FirstExtreme::Found;

Found first_of(const FirstExtreme& extreme, const Found& x, const Found& y) {
  const Expr y_wins = extreme.wins(y, x);
  return {Halide::select(y_wins, y.value, x.value), Halide::select(y_wins, y.place, x.place)};
}

}  // namespace

void Lowering::extreme_index(const SpecMember& m) {
  const size_t me = static_cast<size_t>(&m - spec_.members.data());
  const DType type = accumulated(m);
  const FirstExtreme extreme(m.op, type);
  const int width = natural(widest(m));
  const Id x = m.reduced[0];
  Id v = vectors_ ? vector_axis({me}) : kNone;
  if (v != kNone && (one_in_row(v) || (constant(v) && axis(v).extent < width))) v = kNone;
  const bool along = v == x, panels = v != kNone && !along && constant(v);
  const Expr n = extent(x);
  int lanes = along ? width * kPanel : 1;
  while (along && constant(x) && lanes > width && axis(x).extent < 2 * lanes) lanes /= 2;

  Var u("u");
  const std::vector<Var> left = func_vars(m);
  std::vector<Var> args = left;
  if (along) args.insert(args.begin(), u);
  Func acc(name("acc", m.tensor));
  acc(args) = Halide::Tuple(Halide::Internal::make_zero(storage_type(type)), Expr(kNowhere));
  // The elements from `first` on, one a step or one for each lane.
  auto walk = [&](const Expr& steps, const Expr& first, bool by_lanes) {
    RDom r(0, steps);
    std::vector<Expr> at = exprs(args);
    if (along && !by_lanes) at[0] = r.x;
    const Expr place = by_lanes ? first + r.x * lanes + u : first + r.x;
    Emitter::Axes axes = left_locals(m);
    axes[x] = place;
    Expr value = emit_.value(m.body, axes);
    if (value.type().is_bool()) value = Halide::cast<uint8_t>(value);
    Expr better = acc(at)[1] == kNowhere || extreme.better(value, acc(at)[0]);
    if (!is_true(*spec_.arena, m.condition)) better = better && emit_.condition(m.condition, axes);
    define(acc, at, {Halide::select(better, value, acc(at)[0]), Halide::select(better, place, acc(at)[1])});
    return r;
  };
  auto found = [](const Func& f, const std::vector<Expr>& at) { return Found{f(at)[0], f(at)[1]}; };

  if (along) {
    const RDom blocks = walk(n / lanes, 0, true);
    std::vector<VarOrRVar> order = {u, RVar(blocks.x)};
    order.insert(order.end(), left.begin(), left.end());
    acc.bound(u, 0, lanes).vectorize(u, width).unroll(u);
    Var several("several");
    acc.update(0).reorder(order).split(u, several, u, lanes_written_out({me}, {}, lanes, width)).vectorize(u, width).unroll(u);
    if (!constant(x) || axis(x).extent % lanes != 0) {
      const RDom rest = walk(n % lanes, n / lanes * lanes, false);
      order.erase(order.begin());
      order[0] = RVar(rest.x);
      acc.update(1).reorder(order).vectorize(RVar(rest.x), width, TailStrategy::GuardWithIf);
    }
    // Lanes to one vector, then to one.
    auto folded = [&](const Func& f, int count, int step, const Expr& from) {
      std::vector<Found> parts;
      for (int l = 0; l < count; l += step) {
        std::vector<Expr> at = exprs(args);
        at[0] = from + l;
        parts.push_back(found(f, at));
      }
      for (size_t half = (parts.size() + 1) / 2; parts.size() > 1; half = (parts.size() + 1) / 2) {
        for (size_t i = 0; i + half < parts.size(); ++i) parts[i] = first_of(extreme, parts[i], parts[i + half]);
        parts.resize(half);
      }
      return parts[0];
    };
    auto by_lanes = [&](const char* what, const Found& vector, int count) {
      Func f(name(what, m.tensor));
      define(f, exprs(args), {vector.value, vector.place});
      f.bound(u, 0, count).vectorize(u, count);
      return f;
    };
    // Of several rows side by side, the last lanes: of all of them, that would be a transposition (lower_row_sum.cpp).
    const int last = std::min(width, kLastLanes);
    Func one = by_lanes("vec", folded(acc, lanes, width, u), width), few = by_lanes("few", folded(one, width, last, u), last);
    place_beside(acc, few, left);
    place_beside(one, few, left);
    place(few);
    results_of({me}, [&](size_t) { return Halide::cast<int64_t>(folded(few, last, 1, 0).place); });
    return;
  }

  const RDom r = walk(n, 0, false);
  if (!panels) {
    if (v != kNone) {
      std::vector<VarOrRVar> order = {vars_.at(v), RVar(r.x)};
      for (const Var& y : left)
        if (y.name() != vars_.at(v).name()) order.push_back(y);
      acc.update(0).reorder(order);
      order_rows(acc, m, v);
      vectorize(acc, vars_.at(v), v, widest(m), 1);
      vectorize(acc.update(0), vars_.at(v), v, widest(m), vectors_per_step({me}, v, body_ps({me}), 2));
    }
    place(acc);
    results_of({me}, [&](size_t) { return Halide::cast<int64_t>(acc(exprs(left))[1]); });
    return;
  }
  Func result(name("where", m.tensor));
  result(left) = acc(exprs(left))[1];
  const int panel = width * static_cast<int>(std::min<int64_t>(kPanel, axis(v).extent / width));
  result.bound(vars_.at(v), 0, static_cast<int>(axis(v).extent));
  by_panels(result, acc, m, v, panel, r);
  place(result);
  results_of({me}, [&](size_t) { return Halide::cast<int64_t>(result(exprs(left))); });
}

}  // namespace xhat::runtime
