// Recurrences: y[n,t] = a[n,t]*y[n,t-1 else 0] + b[n,t]. A thread goes along t, one for each n. A step waits for the one before and no load
// does: the loads of a chunk of steps stand before its stores, so that all of them are under way at once.
#include <algorithm>
#include <bit>

#include "cse/normalize/auto_inliner.h"
#include "runtime/gpu/gpu_lowering.h"

namespace xhat::runtime {

using namespace Halide::Internal;

namespace {

constexpr int64_t kLoadsAtOnce = 64;                  // at most: each has a register
constexpr int64_t kFewestSteps = 4, kMostSteps = 32;  // of a chunk

}  // namespace

bool GpuLowering::recurs(const SpecMember& m) const { return recurrence_of(*spec_.arena, m.tensor, m.left, m.body).has_value(); }

void GpuLowering::recurrence_launch(const SpecMember& m) {
  const Arena& a = *spec_.arena;
  const Recurrence own = *recurrence_of(a, m.tensor, m.left, m.body);
  const Id along = m.left[own.along];
  std::vector<Id> others = m.left;
  std::erase(others, along);
  const Points points = all_of(others);
  const Count rows = points.total(), steps = extent(along);
  // Warps of their own: each multiprocessor has few rows to wait for.
  const int threads = static_cast<int>(std::min<int64_t>(kWarp, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows.like())))));
  const Expr number = block() * threads + thread();
  const Point p = point(points, number);

  const std::string values = fresh("values");  // of a chunk's places, after that of the place before the chunk
  const Halide::Type type = storage_type(spec_.tensors[m.tensor].type);
  auto value_at = [&](const Expr& slot) { return Load::make(type, values, slot, {}, {}, const_true(), {}); };
  auto put = [&](const Expr& slot, const Expr& value) {
    return Store::make(values, value.type() == type ? value : Halide::cast(type, value), slot, {}, const_true(), {});
  };
  auto place = [&](const Expr& step) {
    Emitter::Axes at = p.axes;
    at[along] = own.falls ? steps.expr() - 1 - step : step;
    return at;
  };
  auto computed = [&](const Expr& step, const Expr& before, const Expr& to) {
    emit_.given[own.read] = value_at(before);
    Stmt s = put(to, device(emit_.value(m.body, place(step))));
    emit_.given.erase(own.read);
    return s;
  };
  int64_t loads = 0;
  for (Id id : reachable(a, m.body)) loads += is_read(a[id].op) && !a[id].free_axes().empty();
  const auto fitting = std::bit_floor(static_cast<uint64_t>(kLoadsAtOnce / std::max<int64_t>(1, loads)));
  const int chunk = static_cast<int>(std::clamp(static_cast<int64_t>(fitting), kFewestSteps, kMostSteps));

  const std::string turn = fresh("turn"), step = fresh("step"), stored = fresh("step"), last = fresh("step");
  const Expr first = counter(turn) * chunk, whole = steps.expr() / chunk;
  const Stmt all = Block::make(
      {loop(step, chunk, ForType::Unrolled, computed(first + counter(step), counter(step), counter(step) + 1)),
       loop(stored, chunk, ForType::Unrolled, store(m, value_at(counter(stored) + 1), place(first + counter(stored)))),
       put(0, value_at(chunk))});
  const Expr at_last = whole * chunk + counter(last);
  const Stmt rest = Block::make(computed(at_last, 0, 0), store(m, value_at(0), place(at_last)));
  Stmt body = Block::make({put(0, device(emit_.value(a[own.read].args().back(), place(0)))), loop(turn, whole, ForType::Serial, all),
                           loop(last, steps.expr() - whole * chunk, ForType::Serial, rest), Free::make(values)});
  body = Allocate::make(values, type, Halide::MemoryType::Register, {chunk + 1}, const_true(), body);
  Expr inside = p.inside;
  if (!rows.divisible_by(threads)) inside = inside.defined() ? number < rows.expr() && inside : number < rows.expr();
  if (inside.defined()) body = IfThenElse::make(inside, body);
  launch("recurrence", rows.over(threads), threads, {with_lets(p.lets, body)});
}

}  // namespace xhat::runtime
