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

// The value of a step, or of the place before a chunk of steps: in registers.
Expr GpuLowering::value_in(const Recurring& r, const Expr& slot) { return Load::make(r.type, r.values, slot, {}, {}, const_true(), {}); }
Stmt GpuLowering::put_in(const Recurring& r, const Expr& slot, const Expr& value) {
  return Store::make(r.values, value.type() == r.type ? value : Halide::cast(r.type, value), slot, {}, const_true(), {});
}

// Where a step of the row is.
Emitter::Axes GpuLowering::at_step(const Recurring& r, const Emitter::Axes& row, const Expr& step) const {
  Emitter::Axes at = row;
  at[r.along] = r.own.falls ? extent(r.along).expr() - 1 - step : step;
  return at;
}

// So many steps in order, a chunk at once while there are as many, then the rest one by one. value: of a step, where emit_.given has the one
// before; keep: what to do with it.
Stmt GpuLowering::steps_in_order(const Recurring& r, const Expr& count, const std::function<Expr(const Expr& step)>& value,
                                 const std::function<Stmt(const Expr& step, const Expr& value)>& keep) {
  auto compute = [&](const Expr& step, const Expr& from, const Expr& to) {
    emit_.given[r.own.read] = value_in(r, from);
    Stmt s = put_in(r, to, device(value(step)));
    emit_.given.erase(r.own.read);
    return s;
  };
  const std::string turn = fresh("turn"), step = fresh("step"), stored = fresh("step"), last = fresh("step");
  const Expr first = counter(turn) * r.chunk, whole = count / r.chunk, at_last = whole * r.chunk + counter(last);
  const Stmt all = Block::make({loop(step, r.chunk, ForType::Unrolled, compute(first + counter(step), counter(step), counter(step) + 1)),
                                loop(stored, r.chunk, ForType::Unrolled, keep(first + counter(stored), value_in(r, counter(stored) + 1))),
                                put_in(r, 0, value_in(r, r.chunk))});
  const Stmt rest = Block::make(compute(at_last, 0, 0), keep(at_last, value_in(r, 0)));
  return Block::make(loop(turn, whole, ForType::Serial, all), loop(last, count - whole * r.chunk, ForType::Serial, rest));
}

// The steps of a row, after what stands before its first place.
Stmt GpuLowering::from_the_first(const Recurring& r, const Emitter::Axes& row, const Stmt& steps) {
  const Stmt first = put_in(r, 0, device(emit_.value((*spec_.arena)[r.own.read].args().back(), at_step(r, row, 0))));
  return Allocate::make(r.values, r.type, Halide::MemoryType::Register, {r.chunk + 1}, const_true(),
                        Block::make({first, steps, Free::make(r.values)}));
}

void GpuLowering::recurrence_launch(const SpecMember& m) {
  const Arena& a = *spec_.arena;
  Recurring r{m, *recurrence_of(a, m.tensor, m.left, m.body)};
  r.along = m.left[r.own.along];
  std::vector<Id> others = m.left;
  std::erase(others, r.along);
  r.rows = all_of(others);
  r.values = fresh("values");
  r.type = storage_type(spec_.tensors[m.tensor].type);
  int64_t loads = 0;
  for (Id id : reachable(a, m.body)) loads += is_read(a[id].op) && !a[id].free_axes().empty();
  const auto fitting = std::bit_floor(static_cast<uint64_t>(kLoadsAtOnce / std::max<int64_t>(1, loads)));
  r.chunk = static_cast<int>(std::clamp(static_cast<int64_t>(fitting), kFewestSteps, kMostSteps));
  const std::vector<Id> staged = beside_recurrence(m.body, r.own.read, r.along);
  if (!staged.empty() && (others.empty() || lies_along(m.body, r.along, others.back())))
    rows_in_blocks(r, staged);
  else
    rows_by_threads(r);
}

void GpuLowering::rows_by_threads(const Recurring& r) {
  const Count rows = r.rows.total();
  // Warps of their own: each multiprocessor has few rows to wait for.
  const int threads = static_cast<int>(std::min<int64_t>(kWarp, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows.like())))));
  const Expr number = block() * threads + thread();
  const Point p = point(r.rows, number);
  auto value = [&](const Expr& step) { return emit_.value(r.member.body, at_step(r, p.axes, step)); };
  auto keep = [&](const Expr& step, const Expr& made) { return store(r.member, made, at_step(r, p.axes, step)); };
  Stmt body = from_the_first(r, p.axes, steps_in_order(r, extent(r.along).expr(), value, keep));
  if (!rows.divisible_by(threads)) body = IfThenElse::make(number < rows.expr(), body);
  launch("recurrence", rows.over(threads), threads, {with_lets(p.lets, body)});
}

// staged: what all threads of a block compute for its rows, a stage of steps at a time.
void GpuLowering::rows_in_blocks(const Recurring& r, const std::vector<Id>& staged) {
  const Arena& a = *spec_.arena;
  const Count rows = r.rows.total(), steps = extent(r.along);
  const auto spread = static_cast<uint64_t>(std::max<int64_t>(1, rows.like() / kMultiprocessors));
  const int of_block = static_cast<int>(std::min<int64_t>(kRowsOfBlock, static_cast<int64_t>(std::bit_floor(spread))));
  // Elements of a row in a stage; the rows of the block begin in different banks.
  const auto operands = static_cast<int64_t>(staged.size()) + 1;
  int64_t of_row = std::min<int64_t>(kStaged * kThreads, kSharedOfStage / (operands * 8)) / of_block;
  if (!steps.open()) of_row = std::min(of_row, steps.like());
  const int length = static_cast<int>(of_row), pitch = length + 1;
  const std::string stage_number = fresh("stage");
  const Expr first = counter(stage_number) * length;
  const Expr here = steps.divisible_by(length) ? Expr(length) : Halide::min(steps.expr() - first, length);
  auto row_at = [&](const Expr& row) { return point(r.rows, Halide::min(block() * of_block + row, rows.expr() - 1)); };
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
      const Stmt s = body(row, step);
      return inside.defined() ? IfThenElse::make(inside, s) : s;
    });
  };
  struct Part {  // of shared memory: an element for each row and step
    Halide::Type type;
    int begin = 0, pitch = 0;
    Expr place(const Expr& row, const Expr& step) const { return row * pitch + step + begin; }
    Expr at(const Expr& row, const Expr& step) const { return Load::make(type, "xh_shared", place(row, step), {}, {}, const_true(), {}); }
    Stmt put(const Expr& row, const Expr& step, const Expr& value) const {
      return Store::make("xh_shared", value, place(row, step), {}, const_true(), {});
    }
  };
  auto part_of = [&](const Halide::Type& t) {
    const Part part = {t, static_cast<int>(scratch_ / t.bytes()), pitch};
    scratch_ += (int64_t{of_block} * pitch * t.bytes() + 15) / 16 * 16;
    return part;
  };
  std::vector<Part> parts;
  std::vector<Stmt> of_stage;
  for (Id id : staged) {
    const Part part = part_of(device(emit_.value(id, at_step(r, row_at(0).axes, 0))).type());
    of_stage.push_back(by_all([&](const Expr& row, const Expr& step) {
      const Point p = row_at(row);
      return with_lets(p.lets, part.put(row, step, device(emit_.value(id, at_step(r, p.axes, first + step)))));
    }));
    parts.push_back(part);
  }
  const Part results = part_of(r.type);
  shared_bytes_ = scratch_;
  of_stage.push_back(barrier());
  // The rows' threads are in different warps, as far as there are as many.
  const int apart = kThreads / of_block;
  const Expr row = thread() / apart;
  const Point p = row_at(row);
  auto value = [&](const Expr& step) {
    for (size_t i = 0; i < staged.size(); ++i) emit_.given[staged[i]] = as_read(parts[i].at(row, step), a[staged[i]].type);
    Expr e = emit_.value(r.member.body, at_step(r, p.axes, first + step));
    for (Id id : staged) emit_.given.erase(id);
    return e;
  };
  auto keep = [&](const Expr& step, const Expr& made) { return results.put(row, step, made); };
  of_stage.push_back(IfThenElse::make(thread() % apart == 0, steps_in_order(r, here, value, keep)));
  of_stage.push_back(barrier());
  of_stage.push_back(by_all([&](const Expr& x, const Expr& step) {
    const Point of = row_at(x);
    return with_lets(of.lets, store(r.member, results.at(x, step), at_step(r, of.axes, first + step)));
  }));
  const Stmt stages = loop(stage_number, steps.over(length).expr(), ForType::Serial, Block::make(of_stage));
  launch("recurrence", rows.over(of_block), kThreads, {with_lets(p.lets, from_the_first(r, p.axes, stages))});
}

}  // namespace xhat::runtime
