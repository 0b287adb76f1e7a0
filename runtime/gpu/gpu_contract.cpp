// Sums that read the same elements for many results - products of matrices, convolutions - and maps of what comes out.
//
// A block of (mostly) 16 x 16 threads computes a rectangle of results: along two axes, rows and columns, of which some reads depend on
// one only. Each thread keeps several rows and columns of it in registers; for a term of the sum it reads an element per row and
// one per column, and uses each for all its results there. What is read as x[row, term], indices plain, comes by way of shared
// memory, 16 terms at a time: the block reads it once, side by side.
#include <algorithm>
#include <bit>

#include "runtime/emit/emit_ops.h"
#include "runtime/gpu/gpu_lowering.h"
#include "runtime/kernel/kernel_access.h"

namespace xhat::runtime {

using namespace Halide::Internal;

namespace {

constexpr int kSide = 16;         // threads of a block along rows, and along columns
constexpr int kChunk = 16;        // terms that are staged at once
constexpr int kMaxPerSide = 8;   // rows or columns of a thread
constexpr int kMinRows = 4;      // of a tile; with fewer there is little to gain
constexpr int kAccumulators = 64;  // of a thread; half of its registers
constexpr int64_t kSharedOfBlock = 48 << 10;
constexpr int64_t kEnoughBlocks = 132;  // multiprocessors of a large GPU
constexpr int64_t kMinTerms = 8, kManyTerms = 2048;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

Stmt unrolled(const std::string& name, int64_t n, const Stmt& s) {
  return For::make(name, 0, static_cast<int>(n), n > 1 ? ForType::Unrolled : ForType::Serial, Halide::Partition::Auto,
                   Halide::DeviceAPI::None, s);
}
Stmt serial(const std::string& name, const Count& n, const Stmt& s) {
  return For::make(name, 0, n.expr(), ForType::Serial, Halide::Partition::Auto, Halide::DeviceAPI::None, s);
}
Expr variable(const std::string& name) { return Variable::make(Halide::Int(32), name); }

}  // namespace

// Axes of the sums' results of which some reads depend on one only: row and column; the one before the last as rows, if it can be.
std::optional<std::pair<Id, Id>> GpuLowering::reuse(const std::vector<std::vector<size_t>>& groups, const Points& points,
                                                    int64_t least_rows) const {
  const Arena& a = *spec_.arena;
  const SpecMember& f = spec_.members[groups[0][0]];
  bool maps = false;
  std::vector<Id> reads;  // of the sums
  for (const auto& group : groups)
    for (size_t g : group) {
      const SpecMember& m = spec_.members[g];
      if (m.left != f.left || !m.scatter.empty() || m.op == Op::argmax || m.op == Op::argmin) return std::nullopt;
      if (maps && m.op != Op::constant) return std::nullopt;
      maps = m.op == Op::constant;
      for (Id id : reachable(a, roots(m))) {
        const Node& n = a[id];
        if (!is_read(n.op)) continue;
        for (const auto& h : groups)
          for (size_t i : h)
            if (spec_.members[i].tensor == n.symbol && (!maps || n.op != Op::read || !std::ranges::equal(read_indices(n), m.left)))
              return std::nullopt;
        if (!maps) reads.push_back(id);
      }
    }
  auto depends = [&](Id id, Id x) { return std::ranges::binary_search(a[id].free_axes(), x); };
  auto shares = [&](Id row, Id column) {
    return std::ranges::any_of(reads, [&](Id id) { return depends(id, column) && !depends(id, row); });
  };
  for (size_t c = f.left.size(); c-- > 0;)
    for (size_t r = f.left.size(); r-- > 0;)
      if (r != c && points.counts[r].like() >= least_rows && points.counts[c].like() >= kSide && shares(f.left[r], f.left[c]) &&
          shares(f.left[c], f.left[r]))
        return std::pair{f.left[r], f.left[c]};
  return std::nullopt;
}

std::optional<GpuLowering::Rectangle> GpuLowering::rectangle(const std::vector<std::vector<size_t>>& groups, const Points& points,
                                                             bool in_tile, int threads, const Span& span) const {
  const int64_t least_rows = in_tile ? kMinRows : kSide;
  auto axes = reuse(groups, points, least_rows);
  if (!axes || threads < kSide * kSide) return std::nullopt;
  int64_t terms = 0, results = 0;
  for (const auto& group : groups) {
    const SpecMember& m = spec_.members[group[0]];
    if (m.op == Op::constant) continue;
    terms = std::max(terms, span(m.reduced).total().like());
    results += static_cast<int64_t>(group.size());
  }
  if (terms < kMinTerms || results == 0) return std::nullopt;
  auto count = [&](Id x) { return points.counts[static_cast<size_t>(std::ranges::find(points.axes, x) - points.axes.begin())].like(); };
  Rectangle best;
  best.row = axes->first;
  best.column = axes->second;
  best.down = static_cast<int>(std::min<uint64_t>(kSide, std::bit_floor(static_cast<uint64_t>(count(best.row)))));
  best.across = threads / best.down;
  if (best.across > 2 * count(best.column)) return std::nullopt;
  auto fitting = [&](Id x, int side) {
    return static_cast<int>(std::min<uint64_t>(kMaxPerSide, std::bit_ceil(static_cast<uint64_t>(ceil_div(count(x), side)))));
  };
  best.rows = fitting(best.row, best.down);
  best.columns = fitting(best.column, best.across);
  auto too_large = [&] {
    if (best.rows * best.columns * results > kAccumulators) return true;
    if (scratch_ + int64_t{8} * (kChunk + 1) * (best.size_of(best.row) + best.size_of(best.column)) > kSharedOfBlock) return true;
    return !in_tile && rectangles(best, points).total().like() < kEnoughBlocks;
  };
  while (best.rows * best.columns > 1 && too_large()) (best.rows >= best.columns ? best.rows : best.columns) /= 2;
  // Better many threads for each result.
  if (!in_tile && rectangles(best, points).total().like() < kEnoughBlocks / 4 && terms >= kManyTerms) return std::nullopt;
  return best;
}

// The points that are rectangles.
Points GpuLowering::rectangles(const Rectangle& r, Points points) {
  for (size_t i = 0; i < points.axes.size(); ++i)
    if (points.axes[i] == r.row || points.axes[i] == r.column) points.counts[i] = points.counts[i].over(r.size_of(points.axes[i]));
  return points;
}

// Reads of the group's bodies that are staged along the axis `term`.
std::vector<Id> GpuLowering::staged_reads(const std::vector<size_t>& group, const Rectangle& r, Id term) const {
  const Arena& a = *spec_.arena;
  std::vector<Id> all, found;
  for (size_t g : group)
    for (Id id : reachable(a, roots(spec_.members[g])))
      if (is_read(a[id].op) && std::ranges::find(all, id) == all.end()) all.push_back(id);
  for (Id id : all) {
    const Node& n = a[id];
    if (n.op != Op::read || spec_.tensors[n.symbol].is_number() || lies_[n.symbol].in == Lies::In::shared) continue;
    if (std::ranges::count_if(all, [&](Id other) { return a[other].symbol == n.symbol; }) != 1) continue;
    auto indices = read_indices(n);
    bool plain = std::ranges::all_of(indices, [&](Id i) { return a[i].op == Op::axis && std::ranges::count(indices, i) == 1; });
    auto has = [&](Id x) { return std::ranges::find(indices, x) != indices.end(); };
    if (plain && has(term) && has(r.row) != has(r.column)) found.push_back(id);
  }
  return found;
}

// Copies what the block reads of a tensor, from where its axes begin, to shared memory.
Stmt GpuLowering::stage(Id read, const Rectangle& r, Id term, const Emitter::Axes& begins) {
  const Node& n = (*spec_.arena)[read];
  auto indices = read_indices(n);
  const SpecTensor& t = spec_.tensors[n.symbol];
  Halide::Type type = storage_type(t.type);
  if (type.is_float() && type.bits() == 16) type = type.with_code(halide_type_uint);
  Lies lies;
  lies.in = Lies::In::shared;
  lies.offset = scratch_;
  std::vector<int64_t> counts;
  for (Id x : indices) {
    counts.push_back(x == r.row || x == r.column ? r.size_of(x) : x == term ? kChunk : 1);
    lies.origins.push_back(begins.at(x));
  }
  lies.extents = counts;
  // Threads that read a column of it must not meet in a bank.
  for (size_t i = indices.size(); i-- > 0;) {
    if (counts[i] == 1) continue;
    if (indices[i] == term) ++lies.extents[i];
    break;
  }
  int64_t total = 1, kept = 1;
  for (size_t i = 0; i < counts.size(); ++i) {
    total *= counts[i];
    kept *= lies.extents[i];
  }
  const int threads = r.down * r.across;
  std::string turn = fresh("turn");
  Expr rest = variable(turn) * threads + thread();
  std::vector<Expr> local(counts.size());
  for (size_t i = counts.size(); i-- > 0;) {
    local[i] = counts[i] == 1 ? Expr(0) : rest % static_cast<int>(counts[i]);
    if (counts[i] > 1) rest = rest / static_cast<int>(counts[i]);
  }
  Expr from = 0, to = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    Expr at = lies.origins[i] + local[i];
    if (counts[i] > 1) at = Halide::min(at, dimension(n.symbol, i).expr() - 1);
    from = (i > 0 ? from * static_cast<int>(t.shape[i]) : from) + at;
    to = to * static_cast<int>(lies.extents[i]) + local[i];
  }
  Expr value = Load::make(type, buffer_of(n.symbol), simplify(from), {}, {}, const_true(), {});
  Stmt copy = Store::make("xh_shared", value, simplify(to + static_cast<int>(scratch_ / type.bytes())), {}, const_true(), {});
  if (total % threads != 0) copy = IfThenElse::make(variable(turn) * threads + thread() < static_cast<int>(total), copy);
  lies_[n.symbol] = lies;
  scratch_ += (kept * type.bytes() + 15) / 16 * 16;
  shared_bytes_ = std::max(shared_bytes_, scratch_);
  int64_t turns = ceil_div(total, threads);
  return turns <= kMaxPerSide ? unrolled(turn, turns, copy) : serial(turn, turns, copy);
}

// Rectangle `number` of the points, or all in turns if that is undefined. store: what to do with a point and the sums of all groups.
Stmt GpuLowering::contract_stage(const std::vector<std::vector<size_t>>& sums, const Rectangle& r, const Points& points, const Expr& number,
                                 const Span& span,
                                 const std::function<Stmt(const Emitter::Axes&, const std::vector<std::vector<Expr>>&)>& store) {
  Points all = rectangles(r, points);
  for (Expr& origin : all.origins) origin = Expr();
  for (Expr& limit : all.limits) limit = Expr();
  std::string turn = fresh("turn");
  Point p = point(all, number.defined() ? number : all.total().is(1) ? Expr(0) : variable(turn));

  Contraction c;
  c.r = r;
  c.row = fresh("row");
  c.column = fresh("column");
  c.slot = variable(c.row) * r.columns + variable(c.column);
  Expr inside;
  for (size_t i = 0; i < points.axes.size(); ++i) {
    Id x = points.axes[i];
    Expr origin = points.origins[i].defined() ? points.origins[i] : Expr(0), here = p.axes.at(x);
    const bool is_row = x == r.row;
    if (is_row || x == r.column) here = here * r.size_of(x);
    c.begins[x] = c.at[x] = simplify(origin + here);
    Expr end = origin + points.counts[i].expr();
    if (points.limits[i].defined()) end = Halide::min(end, points.limits[i]);
    bool may_pass = points.limits[i].defined();
    if (is_row || x == r.column) {
      // Neighbouring threads have neighbouring columns.
      c.at[x] =
          c.begins[x] + (is_row ? thread() / r.across * r.rows + variable(c.row) : thread() % r.across + variable(c.column) * r.across);
      may_pass |= !points.counts[i].divisible_by(r.size_of(x));
    }
    if (!may_pass) continue;
    end = simplify(end);
    inside = inside.defined() ? inside && c.at[x] < end : c.at[x] < end;
    c.at[x] = Halide::min(c.at[x], end - 1);  // computed, not stored
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
  Id term = kNone;
  std::vector<Id> staged;
  for (size_t i = terms.axes.size(); i-- > 0 && staged.empty();) {
    staged = staged_reads(group, c.r, terms.axes[i]);
    if (!staged.empty()) term = terms.axes[i];
  }
  Emitter::Axes at = c.at, from = c.begins;
  std::vector<std::pair<std::string, Count>> loops;
  Expr inside;
  Count steps = 1;
  Expr origin = 0;  // of the staged axis
  for (size_t i = 0; i < terms.axes.size(); ++i) {
    Id x = terms.axes[i];
    Expr begin = terms.origins[i].defined() ? terms.origins[i] : Expr(0);
    if (x == term) {
      steps = terms.counts[i];
      origin = begin;
      continue;
    }
    loops.emplace_back(fresh("r"), terms.counts[i]);
    at[x] = from[x] = begin + variable(loops.back().first);
  }
  auto update = [&] {
    for (size_t i = 0; i < terms.axes.size(); ++i)
      if (terms.limits[i].defined()) {
        Expr here = at.at(terms.axes[i]) < terms.limits[i];
        inside = inside.defined() ? inside && here : here;
      }
    std::vector<std::pair<std::string, Expr>> lets;
    std::vector<Stmt> stores;
    std::vector<Expr> next = sum.step(now, at);
    for (size_t i = 0; i < next.size(); ++i) {
      std::string name = fresh("next");
      lets.emplace_back(name, device(next[i]));
      stores.push_back(Store::make(names[i], Variable::make(next[i].type(), name), c.slot, {}, const_true(), {}));
    }
    Stmt s = each(c, with_lets(lets, Block::make(stores)));
    return inside.defined() ? IfThenElse::make(inside, s) : s;
  };
  Stmt body;
  if (term == kNone) {
    body = update();
  } else {
    auto chunk = [&](const Expr& first, const Expr& count) {
      const int64_t scratch = scratch_;
      from[term] = first;
      std::vector<Stmt> stmts = {barrier()};  // nobody reads the last chunk any more
      for (Id read : staged) stmts.push_back(stage(read, c.r, term, from));
      stmts.push_back(barrier());
      std::string step = fresh("k");
      at[term] = first + variable(step);
      inside = Expr();
      stmts.push_back(For::make(step, 0, count, ForType::Serial, Halide::Partition::Auto, Halide::DeviceAPI::None, update()));
      for (Id read : staged) lies_[(*spec_.arena)[read].symbol] = {};
      scratch_ = scratch;
      return Block::make(stmts);
    };
    std::string number = fresh("chunk");
    Expr begin = variable(number) * kChunk;
    auto chunks = [&](const Count& n, const Expr& count) { return serial(number, n, chunk(simplify(origin + begin), count)); };
    std::vector<Stmt> parts;
    if (steps.open()) {
      parts.push_back(chunks(steps.over(kChunk), Halide::min(kChunk, steps.expr() - begin)));
    } else {
      const auto full = static_cast<int>(steps.like() / kChunk), rest = static_cast<int>(steps.like() % kChunk);
      if (full > 0) parts.push_back(chunks(full, kChunk));
      if (rest > 0) parts.push_back(chunk(simplify(origin + full * kChunk), rest));
    }
    body = Block::make(parts);
  }
  for (size_t i = loops.size(); i-- > 0;) body = serial(loops[i].first, loops[i].second, body);
  return body;
}

bool GpuLowering::contract_launch(const std::vector<std::vector<size_t>>& groups) {
  reset();
  Points points = all_of(spec_.members[groups[0][0]].left);
  const Span span = [this](const std::vector<Id>& axes) { return all_of(axes); };
  auto r = rectangle(groups, points, false, kSide * kSide, span);
  if (!r) return false;
  std::vector<std::vector<size_t>> sums;
  std::vector<size_t> maps;
  for (const auto& group : groups) {
    if (spec_.members[group[0]].op == Op::constant) maps.insert(maps.end(), group.begin(), group.end());
    else sums.push_back(group);
  }
  auto write = [&](const Emitter::Axes& at, const std::vector<std::vector<Expr>>& values) {
    auto given = emit_.given;
    std::vector<Stmt> stores;
    for (size_t g = 0; g < sums.size(); ++g)
      for (size_t i = 0; i < sums[g].size(); ++i) {
        const SpecMember& m = spec_.members[sums[g][i]];
        const SpecTensor& t = spec_.tensors[m.tensor];
        Expr value = values[g][i];
        if (leaves(m) || maps.empty()) stores.push_back(store(m, value, at));
        if (value.type() != storage_type(t.type)) value = Halide::cast(storage_type(t.type), value);
        emit_.given[spec_.arena->read(m.tensor, t.type, m.left)] = t.type == DType::boolean ? ops::boolean(value) : value;
      }
    if (!maps.empty()) stores.push_back(map_at(maps, at));
    emit_.given = given;
    return Block::make(stores);
  };
  Stmt s = contract_stage(sums, *r, points, block(), span, write);
  launch("contract", rectangles(*r, points).total(), kSide * kSide, {s});
  return true;
}

}  // namespace xhat::runtime
