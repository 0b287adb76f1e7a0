// Sums that read the same elements for many results - products of matrices, convolutions - and maps of what comes out.
//
// A block of (mostly) 16 x 16 threads computes a rectangle of results: rows and columns, each along one axis or along several that are
// counted as one, such that some reads depend on one side only. Each thread keeps several rows and columns of it in registers; for a term of
// the sum it reads an element per row and one per column, and uses each for all its results there. What depends on rows or on columns
// alone, and on the term, comes by way of shared memory, 16 terms at a time: the block computes it once. How large the rectangles are:
// gpu_rectangle.cpp.
#include <algorithm>
#include <unordered_set>

#include "runtime/emit/emit_ops.h"
#include "runtime/gpu/gpu_lowering.h"
#include "runtime/kernel/kernel_access.h"

namespace xhat::runtime {

using namespace Halide::Internal;

namespace {

constexpr double kFasterInLanes = 1.3;  // times, for some threads per result: prices are rough
constexpr int64_t kUnrolled = 128;  // products that follow each other without a branch

Stmt unrolled(const std::string& name, int64_t n, const Stmt& s) {
  return loop(name, static_cast<int>(n), n > 1 ? ForType::Unrolled : ForType::Serial, s);
}
Stmt serial(const std::string& name, const Count& n, const Stmt& s) { return loop(name, n.expr(), ForType::Serial, s); }

}  // namespace

// What of the group's bodies and conditions is computed once for the block along the axis `term`: the largest expressions that depend on it
// and on either the rows or the columns, and read memory. A product of the two sides then multiplies what lies in shared memory.
std::vector<Id> GpuLowering::staged_operands(const std::vector<size_t>& group, const Side& row, const Side& column,
                                             Id term) const {
  const Arena& a = *spec_.arena;
  std::vector<Id> found, open;
  std::unordered_set<Id> seen;
  auto reads_memory = [&](Id root) {
    return std::ranges::any_of(reachable(a, root), [&](Id id) {
      const Node& n = a[id];
      return is_read(n.op) && !spec_.tensors[n.symbol].is_number() && lies_[n.symbol].in != Lies::In::shared && depends(id, {term});
    });
  };
  for (size_t g : group) {
    open.push_back(spec_.members[g].body);
    open.push_back(spec_.members[g].condition);
  }
  while (!open.empty()) {
    const Id id = open.back();
    open.pop_back();
    if (!seen.insert(id).second || !depends(id, {term})) continue;
    const bool one_side = depends(id, row) != depends(id, column);
    if (one_side && (is_float(a[id].type) || a[id].type == DType::boolean) && reads_memory(id)) {
      found.push_back(id);
      continue;
    }
    if (is_read(a[id].op)) continue;  // of both sides, or an index
    for (Id x : a[id].args()) open.push_back(x);
  }
  std::ranges::sort(found);
  return found;
}

// The axis along which most is staged, of these the longest, of these the last; kNone: nothing is.
Id GpuLowering::staged_axis(const std::vector<size_t>& group, const Side& row, const Side& column, const Points& terms) const {
  Id best = kNone;
  std::pair<size_t, int64_t> most = {1, 0};
  for (size_t i = 0; i < terms.axes.size(); ++i) {
    const std::pair<size_t, int64_t> here = {staged_operands(group, row, column, terms.axes[i]).size(), terms.counts[i].like()};
    if (here < most) continue;
    best = terms.axes[i];
    most = here;
  }
  return best;
}

// Whether neighbours along `term` rather than along `side` lie side by side in what is read, mostly.
bool GpuLowering::lies_along(Id value, Id term, Id side) const {
  Arena& a = *spec_.arena;
  int votes = 0;
  for (Id id : reachable(a, value)) {
    if (!is_read(a[id].op) || read_indices(a[id]).empty()) continue;
    const Id last = read_indices(a[id]).back();
    votes += step_along(a, last, term) == 1;
    votes -= step_along(a, last, side) == 1;
  }
  return votes >= 0;
}

// An operand for a chunk of terms, from where the block's axes begin: into registers of its threads, and from there to shared memory. Between
// the two, the threads multiply what they have.
GpuLowering::Staged GpuLowering::stage(Id value, const Contraction& c, Id term, const Emitter::Axes& begins, const std::string& registers) {
  const Arena& a = *spec_.arena;
  const bool of_rows = depends(value, c.r.row);
  const Side& side = of_rows ? c.r.row : c.r.column;
  const Flat& flat = of_rows ? c.rows : c.columns;
  const int length = of_rows ? c.r.height() : c.r.width(), threads = c.r.down * c.r.across;
  const bool terms_first = lies_along(value, term, side.back());
  const int inner = terms_first ? kChunk : length, outer = terms_first ? length : kChunk;
  // In shared memory neighbours along the side lie side by side, for a thread reads several at once. Threads that store neighbouring terms
  // must not meet in a bank.
  const int pitch = length + (terms_first ? pad_of(of_rows) : 0);
  const std::string turn = fresh("turn");
  const Expr number = counter(turn) * threads + thread();
  const Expr slow = number / inner, fast = number % inner;
  Emitter::Axes at = begins;
  at[term] = Halide::min(begins.at(term) + (terms_first ? fast : slow), extent(term).expr() - 1);
  place_along(*flat.points, side, Halide::min(flat.begin + (terms_first ? slow : fast), points_of(*flat.points, side) - 1), &at);
  Staged staged;
  staged.value = value;
  staged.of_rows = of_rows;
  staged.registers = registers;
  staged.turns = static_cast<int>(ceil_div(int64_t{inner} * outer, threads));
  const bool truth = a[value].type == DType::boolean;  // a word each
  Expr computed = emit_.value(value, at);
  computed = device(truth ? Halide::cast<int32_t>(computed) : computed);
  staged.type = computed.type();
  auto guarded = [&](const Stmt& s) { return inner * outer % threads == 0 ? s : IfThenElse::make(number < inner * outer, s); };
  staged.load = unrolled(turn, staged.turns, guarded(Store::make(registers, computed, counter(turn), {}, const_true(), {})));
  const Expr loaded = Load::make(staged.type, registers, counter(turn), {}, {}, const_true(), {});
  staged.offset = static_cast<int>(scratch_ / staged.type.bytes());
  staged.term_step = pitch;
  const Expr place = (terms_first ? fast * pitch + slow : slow * pitch + fast) + staged.offset;
  staged.store = unrolled(turn, staged.turns, guarded(Store::make("xh_shared", loaded, place, {}, const_true(), {})));
  scratch_ += (int64_t{pitch} * kChunk * staged.type.bytes() + 15) / 16 * 16;
  shared_bytes_ = std::max(shared_bytes_, scratch_);
  return staged;
}

// How many points a side has.
Expr GpuLowering::points_of(const Points& points, const Side& side) const {
  Expr all = 1;
  for (size_t i = 0; i < points.axes.size(); ++i) {
    if (std::ranges::find(side, points.axes[i]) == side.end()) continue;
    Expr count = points.counts[i].expr();
    if (points.limits[i].defined()) count = Halide::min(count, points.limits[i] - (points.origins[i].defined() ? points.origins[i] : Expr(0)));
    all = all * count;
  }
  return simplify(all);
}

// The axes of a side at its point of that number.
void GpuLowering::place_along(const Points& points, const Side& side, Expr number, Emitter::Axes* at) const {
  for (size_t i = points.axes.size(); i-- > 0;) {
    const Id x = points.axes[i];
    if (std::ranges::find(side, x) == side.end()) continue;
    const Expr here = x == side.front() ? number : number % points.counts[i].expr();
    (*at)[x] = points.origins[i].defined() ? points.origins[i] + here : here;
    if (x != side.front()) number = number / points.counts[i].expr();
  }
}

// Within the rectangle, the row and the column of a thread: neighbouring rows, and pairs of columns. Two threads, one below the other, are
// neighbours, and so are the next two, which have the next columns.
Expr GpuLowering::own_row(const Contraction& c) {
  return (thread() / (2 * c.r.across) * 2 + thread() % 2) * c.r.rows + counter(c.row);
}
Expr GpuLowering::own_column(const Contraction& c) {
  const int pair = std::min(c.r.columns, kColumnsAtOnce);
  return counter(c.column) / pair * (c.r.across * pair) + thread() / 2 % c.r.across * pair + counter(c.column) % pair;
}

// What a thread reads of it, for its row or column of now and that term of the chunk.
Expr GpuLowering::kept(const Staged& s, const Contraction& c, const Expr& term) const {
  const Expr index = (s.of_rows ? own_row(c) : own_column(c)) + term * s.term_step + s.offset;
  const DType type = (*spec_.arena)[s.value].type;
  const Expr loaded = Load::make(s.type, "xh_shared", index, {}, {}, const_true(), {});
  return type == DType::boolean ? loaded != 0 : as_read(loaded, type);
}

// Rectangle `number` of the points, or all in turns if that is undefined. store: what to do with a point and the sums of all groups.
Stmt GpuLowering::contract_stage(const std::vector<std::vector<size_t>>& sums, const Rectangle& r, const Points& points, const Expr& number,
                                 const Span& span,
                                 const std::function<Stmt(const Emitter::Axes&, const std::vector<std::vector<Expr>>&)>& store) {
  Points all = rectangles(r, points);
  for (Expr& origin : all.origins) origin = Expr();
  for (Expr& limit : all.limits) limit = Expr();
  std::string turn = fresh("turn");
  Point p = point(all, number.defined() ? number : all.total().is(1) ? Expr(0) : counter(turn));

  Contraction c;
  c.r = r;
  c.row = fresh("row");
  c.column = fresh("column");
  c.slot = counter(c.row) * r.columns + counter(c.column);
  Expr inside;
  auto only_if = [&](const Expr& e) { inside = inside.defined() ? inside && e : e; };
  // Neighbouring threads have neighbouring columns.
  auto along = [&](const Side& side, int size, const Expr& own) {
    const Flat flat = {&points, p.axes.at(side.front()) * size};
    bool limited = false;
    for (size_t i = 0; i < points.axes.size(); ++i)
      limited |= points.limits[i].defined() && std::ranges::find(side, points.axes[i]) != side.end();
    Expr here = flat.begin + own;
    if (limited || !points.along(side).divisible_by(size)) {
      const Expr end = points_of(points, side);
      only_if(here < end);
      here = Halide::min(here, end - 1);  // computed, not stored
    }
    place_along(points, side, here, &c.at);
    return flat;
  };
  c.rows = along(r.row, r.height(), own_row(c));
  c.columns = along(r.column, r.width(), own_column(c));
  for (size_t i = 0; i < points.axes.size(); ++i) {
    const Id x = points.axes[i];
    if (c.at.contains(x)) continue;
    const Expr origin = points.origins[i].defined() ? points.origins[i] : Expr(0);
    c.begins[x] = c.at[x] = simplify(origin + p.axes.at(x));
    if (!points.limits[i].defined()) continue;
    const Expr end = simplify(Halide::min(origin + points.counts[i].expr(), points.limits[i]));
    only_if(c.at[x] < end);
    c.at[x] = Halide::min(c.at[x], end - 1);
  }

  std::vector<Stmt> stmts, frees;
  std::vector<std::pair<std::string, Expr>> lets;
  std::vector<std::vector<Expr>> results;
  std::vector<std::pair<std::string, Halide::Type>> registers;
  for (const auto& group : sums) {
    Accumulation sum = accumulation(group);
    std::vector<Expr> now, values;
    std::vector<Stmt> begin;
    std::vector<std::string> names;
    for (const Expr& e : sum.identities) {
      names.push_back(fresh("acc"));
      registers.emplace_back(names.back(), e.type());
      frees.push_back(Free::make(names.back()));
      now.push_back(Load::make(e.type(), names.back(), c.slot, {}, {}, const_true(), {}));
      begin.push_back(Store::make(names.back(), device(e), c.slot, {}, const_true(), {}));
      lets.emplace_back(fresh("sum"), now.back());
      values.push_back(Variable::make(e.type(), lets.back().first));
    }
    stmts.push_back(each(c, Block::make(begin)));
    stmts.push_back(sum_over(group, c, sum, names, now, span(spec_.members[group[0]].reduced)));
    results.push_back(values);
  }
  Stmt last = with_lets(lets, store(c.at, results));
  if (inside.defined()) last = IfThenElse::make(inside, last);
  stmts.push_back(each(c, last));
  stmts.insert(stmts.end(), frees.begin(), frees.end());
  Stmt s = Block::make(stmts);
  for (auto& [name, type] : registers) s = Allocate::make(name, type, Halide::MemoryType::Register, {r.rows * r.columns}, const_true(), s);
  s = with_lets(p.lets, s);
  return number.defined() || all.total().is(1) ? s : serial(turn, all.total(), s);
}

Stmt GpuLowering::each(const Contraction& c, const Stmt& s) { return unrolled(c.row, c.r.rows, unrolled(c.column, c.r.columns, s)); }

// The terms of a group's sums, one after the other; a chunk at a time of the last axis along which something can be staged.
Stmt GpuLowering::sum_over(const std::vector<size_t>& group, const Contraction& c, const Accumulation& sum,
                           const std::vector<std::string>& names, const std::vector<Expr>& now, const Points& terms) {
  const Id term = staged_axis(group, c.r.row, c.r.column, terms);
  Emitter::Axes at = c.at, from = c.begins;
  std::vector<std::pair<std::string, Count>> loops;
  Expr inside;
  Count steps = 1;
  Expr origin = 0, end;  // of the staged axis
  for (size_t i = 0; i < terms.axes.size(); ++i) {
    Id x = terms.axes[i];
    Expr begin = terms.origins[i].defined() ? terms.origins[i] : Expr(0);
    if (x == term) {
      steps = terms.counts[i];
      end = terms.limits[i];
      origin = begin;
      continue;
    }
    loops.emplace_back(fresh("r"), terms.counts[i]);
    at[x] = from[x] = begin + counter(loops.back().first);
  }
  auto update = [&] {
    for (size_t i = 0; i < terms.axes.size(); ++i)
      if (terms.limits[i].defined() && terms.axes[i] != term) {
        Expr here = at.at(terms.axes[i]) < terms.limits[i];
        inside = inside.defined() ? inside && here : here;
      }
    Stmt s = each(c, into_registers(names, sum.step(now, at), c.slot));
    return inside.defined() ? IfThenElse::make(inside, s) : s;
  };
  Stmt body;
  if (term == kNone) {
    body = update();
  } else {
    // Elements of the next chunk are loaded while this one is multiplied.
    const int64_t scratch = scratch_;
    std::vector<std::string> registers;
    const std::vector<Id> operands = staged_operands(group, c.r.row, c.r.column, term);
    for (size_t i = 0; i < operands.size(); ++i) registers.push_back(fresh("ahead"));
    auto staging = [&](const Expr& first) {
      scratch_ = scratch;
      from[term] = first;
      std::vector<Staged> made;
      for (size_t i = 0; i < operands.size(); ++i) made.push_back(stage(operands[i], c, term, from, registers[i]));
      return made;
    };
    auto part = [](const std::vector<Staged>& of, Stmt Staged::*which) {
      std::vector<Stmt> stmts;
      for (const Staged& s : of) stmts.push_back(s.*which);
      return Block::make(stmts);
    };
    const std::string number = fresh("chunk");
    const Expr begin = counter(number) * kChunk;
    const std::vector<Staged> first = staging(origin), next = staging(origin + begin + kChunk);
    const auto given = emit_.given;
    std::string step = fresh("k");
    const Expr k = counter(step);
    // Some terms at once, so that few instructions are spent on their addresses.
    const int at_once = static_cast<int>(std::clamp<int64_t>(kUnrolled / (c.r.rows * c.r.columns), 1, kChunk));
    auto multiply = [&](const Expr& number_of_term) {
      inside = Expr();
      at[term] = origin + begin + number_of_term;
      for (const Staged& s : first) emit_.given[s.value] = kept(s, c, number_of_term);
      return update();
    };
    auto multiplied = [&](const Expr& count, int unroll) {
      const std::string one = fresh("k");
      const Stmt products_of_term = multiply(unroll == 1 ? k : k * unroll + counter(one));
      if (unroll == 1)
        return For::make(step, 0, count, ForType::Serial, Halide::Partition::Auto, Halide::DeviceAPI::None, products_of_term);
      return For::make(step, 0, simplify(count / unroll), ForType::Serial, Halide::Partition::Auto, Halide::DeviceAPI::None,
                       unrolled(one, unroll, products_of_term));
    };
    auto chunk = [&](const Stmt& products, bool last) {
      std::vector<Stmt> stmts = {barrier(), part(first, &Staged::store), barrier()};  // nobody reads the last chunk any more
      if (!last) stmts.push_back(part(next, &Staged::load));
      stmts.push_back(products);
      return Block::make(stmts);
    };
    const Stmt products = multiplied(kChunk, at_once);
    std::vector<Stmt> parts = {part(first, &Staged::load)};
    if (steps.open() || end.defined()) {
      Expr all = steps.expr();
      if (end.defined()) all = Halide::clamp(end - origin, 0, all);
      const std::string terms_here = fresh("terms");
      const Expr n = counter(terms_here);
      Stmt full =
          For::make(number, 0, n / kChunk, ForType::Serial, Halide::Partition::Auto, Halide::DeviceAPI::None, chunk(products, false));
      Stmt rest = LetStmt::make(number, n / kChunk, chunk(multiplied(n % kChunk, 1), true));
      const Stmt some = Block::make({parts[0], full, IfThenElse::make(n % kChunk > 0, rest)});
      parts = {LetStmt::make(terms_here, simplify(all), IfThenElse::make(n > 0, some))};
    } else {
      const auto full = static_cast<int>(steps.like() / kChunk), rest = static_cast<int>(steps.like() % kChunk);
      if (full > 0) parts.push_back(serial(number, full, chunk(products, rest == 0 && full == 1)));
      if (rest > 0) parts.push_back(LetStmt::make(number, full, chunk(multiplied(rest, 1), true)));
    }
    emit_.given = given;
    scratch_ = scratch;
    body = Block::make(parts);
    for (const Staged& s : first)
      body = Allocate::make(s.registers, s.type, Halide::MemoryType::Register, {s.turns}, const_true(),
                            Block::make(body, Free::make(s.registers)));
  }
  for (size_t i = loops.size(); i-- > 0;) body = serial(loops[i].first, loops[i].second, body);
  return body;
}

// Groups of sums, and the members of all groups of maps.
std::pair<std::vector<std::vector<size_t>>, std::vector<size_t>> GpuLowering::apart(const std::vector<std::vector<size_t>>& groups) const {
  std::vector<std::vector<size_t>> sums;
  std::vector<size_t> maps;
  for (const auto& group : groups) {
    if (spec_.members[group[0]].op == Op::constant)
      maps.insert(maps.end(), group.begin(), group.end());
    else
      sums.push_back(group);
  }
  return {sums, maps};
}

bool GpuLowering::contract_launch(const std::vector<std::vector<size_t>>& groups) {
  reset();
  Points points = all_of(spec_.members[groups[0][0]].left);
  const Span span = [this](const std::vector<Id>& axes) { return all_of(axes); };
  auto r = rectangle(groups, points, false, kSide * kSide, span);
  if (!r) return false;
  const auto parts = apart(groups);
  const auto& sums = parts.first;
  const std::vector<size_t>& maps = parts.second;
  if (sums.size() == 1 && maps.empty() && kFasterInLanes * std::max(alone_ns(sums[0]), cached_ns(sums[0])) < r->ns) return false;
  if (r->split.some()) {
    // The sums are not there before they are added up, so what is made of them comes after that.
    const Count blocks = rectangles(*r, points).total();
    const Expr part = block() / blocks.expr();
    auto rows = [&](const Emitter::Axes& at, const std::vector<std::vector<Expr>>& values) { return write(sums[0], values[0], at, part); };
    const Span terms = [&](const std::vector<Id>& axes) { return part_of(axes, r->split, part); };
    launch("contract", blocks * r->split.parts, kSide * kSide, {contract_stage(sums, *r, points, block() % blocks.expr(), terms, rows)});
    finish_launch(sums[0], r->split.parts, maps);
    return true;
  }
  auto stores = [&](const Emitter::Axes& at, const std::vector<std::vector<Expr>>& values) { return with_maps(sums, values, maps, at); };
  Stmt s = contract_stage(sums, *r, points, block(), span, stores);
  launch("contract", rectangles(*r, points).total(), kSide * kSide, {s});
  return true;
}

}  // namespace xhat::runtime
