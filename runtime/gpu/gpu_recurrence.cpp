// Recurrences: y[n,t] = a[n,t]*y[n,t-1 else 0] + b[n,t]. A thread goes along t, one for each n. A step waits for the one before and no load
// does: the loads of a chunk of steps stand before its stores, so that all of them are under way at once.
//
// Where neighbours along t lie side by side, a block has few rows. All of its threads compute what a step needs but for y (a and b), for many
// steps, into shared memory; a thread for each row goes along these; and all threads write the results.
#include <algorithm>
#include <bit>
#include <unordered_set>

#include "cse/normalize/auto_inliner.h"
#include "runtime/gpu/gpu_lowering.h"

namespace xhat::runtime {

using namespace Halide::Internal;

namespace {

constexpr int64_t kLoadsAtOnce = 64;                  // at most: each has a register
constexpr int64_t kFewestSteps = 4, kMostSteps = 32;  // of a chunk
constexpr int64_t kRowsOfBlock = 32;                  // at most
constexpr int64_t kStaged = 8;                        // elements of an operand that a thread computes for a stage of steps
constexpr int64_t kSharedOfStage = 40 << 10;          // bytes, at most

}  // namespace

bool GpuLowering::recurs(const SpecMember& m) const { return recurrence_of(*spec_.arena, m.tensor, m.left, m.body).has_value(); }

// What a step needs and is the same whatever the step before came to: the largest parts of the body that read memory along the axis.
std::vector<Id> GpuLowering::beside_recurrence(Id body, Id read, Id along) const {
  const Arena& a = *spec_.arena;
  std::vector<Id> found, open = {body};
  std::unordered_set<Id> seen;
  while (!open.empty()) {
    const Id id = open.back();
    open.pop_back();
    if (id == read || !depends(id, {along}) || !seen.insert(id).second) continue;
    const std::vector<Id> parts = reachable(a, id);
    const bool waits = std::ranges::find(parts, read) != parts.end();
    const bool loads = std::ranges::any_of(parts, [&](Id x) { return is_read(a[x].op) && depends(x, {along}); });
    if (!waits && loads && a[id].type != DType::boolean)
      found.push_back(id);
    else
      for (Id x : a[id].args()) open.push_back(x);
  }
  std::ranges::sort(found);
  return found;
}

// Of the steps first, first + 1, …: so many at once while there are as many, then the rest one by one. before: where the value of the step
// before stands, in registers. compute: of a step, from one register into another; keep: what to do with the value in a register.
Stmt GpuLowering::steps_in_order(const Expr& count, int chunk, const std::function<Stmt(const Expr& step, const Expr& from, const Expr& to)>& compute,
                                 const std::function<Stmt(const Expr& step, const Expr& slot)>& keep,
                                 const std::function<Stmt(const Expr& from, const Expr& to)>& move) {
  const std::string turn = fresh("turn"), step = fresh("step"), stored = fresh("step"), last = fresh("step");
  const Expr first = counter(turn) * chunk, whole = count / chunk, at_last = whole * chunk + counter(last);
  const Stmt all = Block::make({loop(step, chunk, ForType::Unrolled, compute(first + counter(step), counter(step), counter(step) + 1)),
                                loop(stored, chunk, ForType::Unrolled, keep(first + counter(stored), counter(stored) + 1)), move(chunk, 0)});
  const Stmt rest = Block::make(compute(at_last, 0, 0), keep(at_last, 0));
  return Block::make(loop(turn, whole, ForType::Serial, all), loop(last, count - whole * chunk, ForType::Serial, rest));
}

void GpuLowering::recurrence_launch(const SpecMember& m) {
  Arena& a = *spec_.arena;
  const Recurrence own = *recurrence_of(a, m.tensor, m.left, m.body);
  const Id along = m.left[own.along];
  std::vector<Id> others = m.left;
  std::erase(others, along);
  const Points points = all_of(others);
  const Count rows = points.total(), steps = extent(along);

  const std::string values = fresh("values");  // of a chunk's places, after that of the place before the chunk
  const Halide::Type type = storage_type(spec_.tensors[m.tensor].type);
  auto value_at = [&](const Expr& slot) { return Load::make(type, values, slot, {}, {}, const_true(), {}); };
  auto put = [&](const Expr& slot, const Expr& value) {
    return Store::make(values, value.type() == type ? value : Halide::cast(type, value), slot, {}, const_true(), {});
  };
  auto place = [&](const Emitter::Axes& row, const Expr& step) {
    Emitter::Axes at = row;
    at[along] = own.falls ? steps.expr() - 1 - step : step;
    return at;
  };
  int64_t loads = 0;
  for (Id id : reachable(a, m.body)) loads += is_read(a[id].op) && !a[id].free_axes().empty();
  const auto fitting = std::bit_floor(static_cast<uint64_t>(kLoadsAtOnce / std::max<int64_t>(1, loads)));
  const int chunk = static_cast<int>(std::clamp(static_cast<int64_t>(fitting), kFewestSteps, kMostSteps));
  auto move = [&](const Expr& from, const Expr& to) { return put(to, value_at(from)); };
  auto in_registers = [&](const Stmt& s) {
    return Allocate::make(values, type, Halide::MemoryType::Register, {chunk + 1}, const_true(), Block::make(s, Free::make(values)));
  };
  auto guarded = [](const Expr& inside, const Stmt& s) { return inside.defined() ? IfThenElse::make(inside, s) : s; };

  const std::vector<Id> staged = beside_recurrence(m.body, own.read, along);
  if (staged.empty() || (!others.empty() && !lies_along(m.body, along, others.back()))) {
    // Warps of their own: each multiprocessor has few rows to wait for.
    const int threads = static_cast<int>(std::min<int64_t>(kWarp, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows.like())))));
    const Expr number = block() * threads + thread();
    const Point p = point(points, number);
    auto compute = [&](const Expr& step, const Expr& from, const Expr& to) {
      emit_.given[own.read] = value_at(from);
      Stmt s = put(to, device(emit_.value(m.body, place(p.axes, step))));
      emit_.given.erase(own.read);
      return s;
    };
    auto keep = [&](const Expr& step, const Expr& slot) { return store(m, value_at(slot), place(p.axes, step)); };
    const Stmt body = in_registers(Block::make(put(0, device(emit_.value(a[own.read].args().back(), place(p.axes, 0)))),
                                               steps_in_order(steps.expr(), chunk, compute, keep, move)));
    const Expr inside = rows.divisible_by(threads) ? Expr() : number < rows.expr();
    launch("recurrence", rows.over(threads), threads, {with_lets(p.lets, guarded(inside, body))});
    return;
  }

  const auto spread = static_cast<uint64_t>(std::max<int64_t>(1, rows.like() / kMultiprocessors));
  const int of_block = static_cast<int>(std::min<int64_t>(kRowsOfBlock, static_cast<int64_t>(std::bit_floor(spread))));
  // Elements of a row in a stage; the rows of the block begin in different banks.
  const auto operands = static_cast<int64_t>(staged.size()) + 1;
  int64_t of_row = std::min<int64_t>(kStaged * kThreads, kSharedOfStage / (operands * 8)) / of_block;
  if (!steps.open()) of_row = std::min(of_row, steps.like());
  const int length = static_cast<int>(of_row), pitch = length + 1;
  const Count stages = steps.over(length);
  const std::string stage_number = fresh("stage");
  const Expr first = counter(stage_number) * length;
  const Expr here = steps.divisible_by(length) ? Expr(length) : Halide::min(steps.expr() - first, length);
  auto row_at = [&](const Expr& row) { return point(points, Halide::min(block() * of_block + row, rows.expr() - 1)); };
  // All elements of the stage, in turns.
  auto by_all = [&](const std::function<Stmt(const Expr& row, const Expr& step)>& body) {
    const int64_t all = int64_t{of_block} * length;
    const Expr turns = static_cast<int>(ceil_div(all, kThreads));
    return repeat(turns, static_cast<int>(kStaged), [&](const Expr& turn) {
      const Expr number = turn * kThreads + thread();
      const Expr row = number / length, step = number % length;
      Expr inside = all % kThreads != 0 ? number < static_cast<int>(all) : Expr();
      auto also = [&](const Expr& e) { inside = inside.defined() ? inside && e : e; };
      if (!steps.divisible_by(length)) also(step < here);
      if (!rows.divisible_by(of_block)) also(block() * of_block + row < rows.expr());
      return guarded(inside, body(row, step));
    });
  };
  std::vector<int> begins;  // of the operands in shared memory, in elements
  std::vector<Halide::Type> types;
  auto room = [&](const Halide::Type& t) {
    begins.push_back(static_cast<int>(scratch_ / t.bytes()));
    types.push_back(t);
    scratch_ += (int64_t{of_block} * pitch * t.bytes() + 15) / 16 * 16;
    return begins.back();
  };
  std::vector<Stmt> of_stage;
  for (Id id : staged) {
    const Halide::Type t = device(emit_.value(id, place(row_at(0).axes, 0))).type();
    const int begin = room(t);
    of_stage.push_back(by_all([&](const Expr& row, const Expr& step) {
      const Point p = row_at(row);
      return with_lets(p.lets, Store::make("xh_shared", device(emit_.value(id, place(p.axes, first + step))), row * pitch + step + begin, {}, const_true(), {}));
    }));
  }
  const int results = room(type);
  shared_bytes_ = scratch_;
  of_stage.push_back(barrier());
  // The rows' threads are in different warps, as far as there are as many.
  const int apart = kThreads / of_block;
  const Expr row = thread() / apart;
  const Point p = row_at(row);
  auto compute = [&](const Expr& step, const Expr& from, const Expr& to) {
    const auto given = emit_.given;
    emit_.given[own.read] = value_at(from);
    for (size_t i = 0; i < staged.size(); ++i)
      emit_.given[staged[i]] = as_read(Load::make(types[i], "xh_shared", row * pitch + step + begins[i], {}, {}, const_true(), {}), a[staged[i]].type);
    Stmt s = put(to, device(emit_.value(m.body, place(p.axes, first + step))));
    emit_.given = given;
    return s;
  };
  auto keep = [&](const Expr& step, const Expr& slot) {
    return Store::make("xh_shared", value_at(slot), row * pitch + step + results, {}, const_true(), {});
  };
  of_stage.push_back(IfThenElse::make(thread() % apart == 0, steps_in_order(here, chunk, compute, keep, move)));
  of_stage.push_back(barrier());
  of_stage.push_back(by_all([&](const Expr& r, const Expr& step) {
    const Point of = row_at(r);
    return with_lets(of.lets, store(m, Load::make(type, "xh_shared", r * pitch + step + results, {}, {}, const_true(), {}), place(of.axes, first + step)));
  }));
  const Stmt body = in_registers(Block::make(put(0, device(emit_.value(a[own.read].args().back(), place(p.axes, 0)))),
                                             loop(stage_number, stages.expr(), ForType::Serial, Block::make(of_stage))));
  launch("recurrence", rows.over(of_block), kThreads, {with_lets(p.lets, body)});
}

}  // namespace xhat::runtime
