// Recurrences: y[n,t] = a[n,t]*y[n,t-1 else 0] + b[n,t]. Along t each result waits for the one before (four cycles for a multiplication, as many
// for memory), so that several others go beside it: vectors along another axis where that one is contiguous, else some rows.
#include <algorithm>

#include "runtime/cpu/lowering.h"

namespace xhat::runtime {
namespace {

constexpr int kRows = 8;     // chains of scalars beside each other: a step of one takes some eight cycles
constexpr int kVectors = 4;  // chains of vectors

}  // namespace

void Lowering::walk(const SpecMember& m, const Recurrence& own) {
  const Arena& a = *spec_.arena;
  const Id along = m.left[own.along];
  Func f(name("walk", m.tensor));
  const std::vector<Var> vars = func_vars(m);
  f(vars) = Halide::undef(storage_type(spec_.tensors[m.tensor].type));
  const Expr count = extent(along);
  const RDom r(1, count - 1);
  // At place t; before: what is read of the place before it.
  auto step = [&](const Expr& t, bool begins) {
    auto at = [&](const Expr& where) {
      std::vector<Expr> args = exprs(vars);
      for (Expr& x : args)
        if (const auto* v = x.as<Halide::Internal::Variable>(); v && v->name == vars_.at(along).name()) x = where;
      return args;
    };
    Emitter::Axes axes = left_locals(m);
    axes[along] = t;
    const Id otherwise = a[own.read].args().back();
    emit_.given[own.read] = begins ? emit_.value(otherwise, axes) : Expr(f(at(own.falls ? t + 1 : t - 1)));
    f(at(t)) = to_storage(m, emit_.value(m.body, axes));
    emit_.given.clear();
  };
  step(own.falls ? count - 1 : Expr(0), true);
  step(own.falls ? count - 1 - r : Expr(r), false);

  const std::vector<size_t> self = {static_cast<size_t>(&m - spec_.members.data())};
  std::vector<Id> others;  // innermost first
  const auto dims = tile_dimensions(spec_, m);
  for (size_t i = dims.size(); i-- > 0;)
    if (const Id x = m.left[dims[i]]; x != along) others.push_back(x);
  const Id beside = others.empty() ? kNone : others[0];
  const Id v = vector_axis(self);
  const bool lanes = vectors_ && beside != kNone && v == beside;
  const int width = lanes ? natural(widest(m)) : 1;
  int together = !vectors_ || beside == kNone ? 1 : lanes ? width * kVectors : kRows;
  while (together > 1 && constant(beside) && axis(beside).extent < together) together /= 2;
  auto schedule = [&](Halide::Stage stage, bool first, int group) {
    std::vector<VarOrRVar> order, outside;
    if (group > 1) {
      const Var outer("w_o"), inner("w_i");
      stage.split(vars_.at(beside), outer, inner, group, TailStrategy::GuardWithIf);
      if (lanes) stage.vectorize(inner, std::min(width, group));
      stage.unroll(inner);
      order.emplace_back(inner);
      outside.emplace_back(outer);
    }
    for (const Id x : others)
      if (x != beside || group == 1) outside.emplace_back(vars_.at(x));
    if (!first) order.emplace_back(RVar(r.x));
    order.insert(order.end(), outside.begin(), outside.end());
    if (order.size() > 1) stage.reorder(order);
  };
  for (int s = 0; s < 2; ++s) {
    auto stage = f.update(s);
    // Of a tile with few columns a part of a group would be stored under masks, and waited for in the cache by each step.
    const bool narrow = lanes && !constant(beside);
    if (narrow) schedule(stage.specialize(extent(beside) >= together), s == 0, together);
    schedule(stage, s == 0, narrow ? width : together);
  }
  publish(m, f);
}

}  // namespace xhat::runtime
