// Contractions: sum(k: f(a[y,k], b[k,v])), where what is read depends on y or on v but not on both, so that a block of
// results can be computed from few reads.
//
//   for each panel of v:  pack b's part of it, [k][panel]                  (L2)
//     for each block of y:  for k:  acc[y block][panel] += a[y,k] * pack[k][panel]     (registers)
//
// What a is computed from, if it is more than a read, is computed before, in vectors along k.
//
// The scheme of Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication (ACM TOMS 34, 2008), without a
// block over k. f is any expression; b any part of it, so that convolutions, distances and transposed operands go the same
// way. Last blocks overlap the ones before instead of being shorter. Where v is walked in phases (kernel_phases.cpp), a block
// has all of them: they read the same of b, and neighbours of a.
#include <algorithm>
#include <set>

#include "expr/core/conditions.h"
#include "runtime/cpu/lowering.h"

namespace xhat::runtime {
namespace {

constexpr int64_t kMaxUnrolled = 4;       // steps of the sum, to tell phases apart
constexpr int64_t kRowsToPack = 24;       // below, copying costs more than it helps
constexpr int64_t kRowsToTurn = 8;        // the same where steps of the sum are beside each other, and each would gather a vector
constexpr int64_t kLargestPack = 1 << 20;
constexpr int64_t kMinPanels = 2;  // that a copy of what is read along the rows is worth
constexpr int64_t kPageBytes = 4096;

bool reads_data(const Arena& a, Id id) {
  return std::ranges::any_of(reachable(a, id), [&](Id x) { return is_read(a[x].op) && !a[x].free_axes().empty(); });
}

// Does one of the parts depend on both axes?
bool has_with(const Arena& a, const std::vector<Id>& parts, Id x, Id y) {
  return std::ranges::any_of(parts, [&](Id part) { return a[part].depends_on(x) && a[part].depends_on(y); });
}

// The rows of a copy, along the dimension `row`, do not lie a multiple of a page apart. `extents`: of its dimensions.
void pad_rows(Func f, const std::vector<int64_t>& extents, size_t row) {
  constexpr int64_t kLine = 64;
  if (row == 0 || row >= extents.size()) return;
  int64_t step = f.types()[0].bytes();  // of the dimension before
  for (size_t d = 0; d + 1 < row; ++d) step *= extents[d];
  const int64_t before = extents[row - 1];
  if (before * step % kPageBytes == 0) f.align_storage(f.args()[row - 1], static_cast<int>(before + std::max<int64_t>(1, kLine / step)));
}

}  // namespace

// The largest parts of the body that read and depend on one axis but not on the other.
std::vector<Id> Lowering::parts_along(const SpecMember& m, Id along, Id but_not) const {
  const Arena& a = *spec_.arena;
  std::vector<Id> stack = {m.body}, found;
  std::set<Id> seen;
  while (!stack.empty()) {
    Id id = stack.back();
    stack.pop_back();
    if (!seen.insert(id).second || !a[id].depends_on(along) || !reads_data(a, id)) continue;
    if (!a[id].depends_on(but_not) && is_float(a[id].type))
      found.push_back(id);
    else if (!is_read(a[id].op))
      for (Id x : a[id].args()) stack.push_back(x);
  }
  return found;
}

// A part of the body as a stage of its own: over `axes` first, then the sum's as they are walked, then the result's. Rows in
// blocks: [block][..][row of the block], so that a block is read in order.
Lowering::Part Lowering::part_of(const SpecMember& m, Id part, std::vector<Id> axes, const Emitter::Axes& at, const Contraction* rows_of,
                                 const Expr& row_at) {
  Part p;
  const bool panel = !axes.empty();
  Emitter::Axes inside = left_locals(m);
  std::vector<Var> vars;
  std::vector<Expr> from;
  auto dimension = [&](const Var& var, const Expr& place) {
    vars.push_back(var);
    from.push_back(place);
  };
  Var row("row"), block("block");
  if (rows_of) dimension(row, row_at % rows_of->rows);
  axes.insert(axes.end(), m.reduced.rbegin(), m.reduced.rend());
  axes.insert(axes.end(), m.left.begin(), m.left.end());
  for (Id x : axes) {
    if (axis(x).kind() == AxisKind::point) inside[x] = 0;
    if (!(*spec_.arena)[part].depends_on(x) || axis(x).kind() == AxisKind::point || (rows_of && x == rows_of->y)) continue;
    if (std::ranges::find(p.axes, x) != p.axes.end()) continue;
    p.axes.push_back(x);
    dimension(vars_.at(x), at.at(x));
    inside[x] = vars_.at(x);
  }
  if (rows_of) {
    dimension(block, row_at / rows_of->rows);
    inside[rows_of->y] = Halide::min(Halide::likely(block * rows_of->rows + row), extent(rows_of->y) - 1);
  }
  p.func = Func(name("part", m.tensor) + "_" + std::to_string(parts_++));
  if (!rows_of && !p.axes.empty()) {
    p.turned = panel ? turned_panel(m, part, p.axes[0]) : turned({part}, p.axes[0], (*spec_.arena)[part].type);
    choose_transposes(p.turned, vars, inside);
  }
  define(p.func, exprs(vars), {reading_always(emit_.value(part, inside), p.turned.reads)});
  emit_.given.clear();
  if (rows_of) {
    // A line of memory has rows of all blocks, and is read once.
    std::vector<VarOrRVar> order = {row, block};
    for (size_t i = 1; i + 1 < vars.size(); ++i) order.push_back(vars[i]);
    p.func.bound(row, 0, rows_of->rows).reorder(order).vectorize(row, rows_of->rows);
  }
  p.read = p.func(from);
  return p;
}

// A panel is packed for one element of the result's other axes at a time: along these it has no square.
Lowering::Turned Lowering::turned_panel(const SpecMember& m, Id part, Id v) const {
  const Turned found = turned({part}, v, (*spec_.arena)[part].type, !spec_.any_size());
  return std::ranges::find(m.left, found.along) != m.left.end() ? Turned() : found;
}

int64_t Lowering::bytes_in_tile(Id part) const {
  int64_t bytes = static_cast<int64_t>(byte_size((*spec_.arena)[part].type));
  for (Id x : (*spec_.arena)[part].free_axes()) bytes *= axis(x).in_tile();
  return bytes;
}

// A part that goes through memory along the rows, a step of the sum being a leap: a[k,y].
bool Lowering::worth_packing_rows(const Contraction& c, Id part, int64_t terms) const {
  constexpr int64_t kMinTerms = 32;
  const Arena& a = *spec_.arena;
  bool once = !is_read(a[part].op) || panels(c) >= kMinPanels;
  if (!once || terms < kMinTerms || bytes_in_tile(part) > kLargestPack) return false;
  size_t reads = 0, along_rows = 0;
  for (Id id : reachable(a, part)) {
    if (!is_read(a[id].op) || !a[id].depends_on(c.y)) continue;
    ++reads;
    along_rows += step_along(*spec_.arena, read_indices(a[id]).back(), c.y) == 1;
  }
  return 2 * along_rows > reads;
}

// Results in the tile that read the same of a part: of one along the columns these are rows, and what else it does not depend on, as the
// steps of a window in w[k,c,r,s].
int64_t Lowering::readers_of(const SpecMember& m, Id part) const {
  int64_t readers = 1;
  for (Id x : m.left)
    if (!(*spec_.arena)[part].depends_on(x)) readers *= axis(x).in_tile();
  return readers;
}

bool Lowering::worth_packing_columns(const SpecMember& m, const Contraction& c, Id part) const {
  if (spec_.terms(m) * c.width * c.vectors * static_cast<int64_t>(byte_size(widest(m))) > kLargestPack || is_window(m, c, part)) return false;
  return readers_of(m, part) >= (turned_panel(m, part, c.v).along == kNone ? kRowsToPack : kRowsToTurn);
}

// A window that slides along v (x[ci,i+r,j+s], v being j): packed it is as many times as large as there are steps in it, and the
// next vector of what is there lies beside the last one anyhow. Forward of a convolution of 32 channels, 56x56, 3x3: 2.68 ms
// packed, 2.40 read where it lies.
bool Lowering::is_window(const SpecMember& m, const Contraction& c, Id part) const {
  Arena& a = *spec_.arena;
  if (!is_read(a[part].op)) return false;
  const Id last = read_indices(a[part]).back();
  return step_along(a, last, c.v) == 1 && std::ranges::any_of(m.reduced, [&](Id x) { return a[last].depends_on(x); });
}

// Do its rows lie multiples of a page apart? Then the lines of a block of them look alike to the L1 cache, which tells lines by the low
// bits of their addresses (dense_gelu's forward: 5.9 ms, 8.2 where they lie). What is made in the tile has been there just now: copied
// or padded, it gained nothing. Lines along which the sum walks are needed at many steps, so a copy is worth it for one panel too (a gradient by
// 3x3 weights, of planes of 32x32).
bool Lowering::rows_collide(const SpecMember& m, const Contraction& c, Id part) const {
  Arena& a = *spec_.arena;
  const SpecTensor& t = spec_.tensors[a[part].symbol];
  if (!t.dense || t.use == SpecTensor::Use::temporary) return false;
  const auto indices = read_indices(a[part]);
  constexpr int kWays = 8;  // of the L1 cache
  const bool along_sum = c.rows > kWays && std::ranges::any_of(m.reduced, [&](Id x) { return step_along(a, indices.back(), x) == 1; });
  if (panels(c) < kMinPanels && !along_sum) return false;
  int64_t apart = static_cast<int64_t>(byte_size(t.type));
  for (size_t d = indices.size(); d-- > 0; apart *= t.shape[d])
    if (a[indices[d]].depends_on(c.y)) return step_along(a, indices[d], c.y).value_or(1) * apart % kPageBytes == 0;
  return false;
}

void Lowering::contract(const SpecMember& m, const Contraction& c) {
  const Arena& a = *spec_.arena;
  Var v = vars_.at(c.v), y = vars_.at(c.y), vo("vo"), vi("vi"), yo("yo"), yi("yi");
  const int panel = c.width * c.vectors;
  std::vector<Id> in_blocks, in_lines;  // parts along the rows
  for (Id id : parts_along(m, c.y, c.v)) (worth_packing_rows(c, id, spec_.terms(m)) ? in_blocks : in_lines).push_back(id);
  const bool whole_rows = constant(c.y) && axis(c.y).extent >= c.rows && in_blocks.empty();
  const BandSteps steps = band_steps(m, c, whole_rows);
  const Block& block = steps.block;

  std::vector<Part> packs;
  std::set<Id> outer;  // axes of the result that packs depend on
  std::map<Id, Expr> given;
  const Emitter::Axes& axes = steps.loops[0].axes;
  for (Id id : parts_along(m, c.v, c.y)) {
    if (!worth_packing_columns(m, c, id)) continue;
    Part p = part_of(m, id, {c.v}, axes);
    given[id] = p.read;
    packs.push_back(p);
    for (Id x : p.axes)
      if (x != c.v && x != c.phase && std::ranges::find(m.left, x) != m.left.end()) outer.insert(x);
  }
  for (Id id : in_blocks) {
    Part p = part_of(m, id, {}, axes, &c, block.row_at);
    given[id] = p.read;
    place(p.func);
  }
  for (Id id : in_lines) {
    if ((is_read(a[id].op) && !rows_collide(m, c, id)) || bytes_in_tile(id) > kLargestPack) continue;
    Part p = part_of(m, id, {}, axes);
    std::vector<int64_t> extents;
    for (Id x : p.axes) extents.push_back(axis(x).in_tile());
    pad_rows(p.func, extents, static_cast<size_t>(std::ranges::find(p.axes, c.y) - p.axes.begin()));
    given[id] = p.read;
    if (axis(p.axes[0]).extent >= natural(a[id].type))
      vectorize(p.func, vars_.at(p.axes[0]), p.axes[0], a[id].type, 1);
    place(p.func);
  }

  Func acc(name("acc", m.tensor));
  const std::vector<Expr> at = exprs(block.args);
  acc(block.args) = Emitter::identity(m.op, accumulated(m));
  for (const BandSteps::Loop& loop : steps.loops) {
    Emitter emit = emit_;
    std::vector<Expr> packed;
    for (const auto& [id, read] : given) emit.given[id] = in_loop(read, steps.loops[0].k, loop.k);
    for (const Part& p : packs) packed.push_back(in_loop(p.read, steps.loops[0].k, loop.k));
    SpecMember step = m;
    step.condition = loop.chosen;
    Expr next = reading_always(emit.step(step, acc(at), loop.axes), packed);
    mention(loop.k, next);
    define(acc, at, {next});
  }

  Func r(name("red", m.tensor));
  const Expr sum = acc(block.of_result);
  r(func_vars(m)) = carry(m, to_storage(m, only_where(steps.kept, sum, m)));
  const bool once = spec_.carried_over(m) != kNone;  // each element, for it is added to
  const auto tail = once || block.apart ? TailStrategy::GuardWithIf : TailStrategy::ShiftInwards;
  r.split(v, vo, vi, panel, tail);
  r.split(y, yo, yi, c.rows, whole_rows ? tail : TailStrategy::GuardWithIf);
  std::vector<VarOrRVar> order = {vi, yi, yo}, last;
  if (c.phase != kNone) order.insert(order.begin() + 1, vars_.at(c.phase));
  for (Id x : m.left) {
    if (x == c.v || x == c.y || x == c.phase || axis(x).kind() == AxisKind::point) continue;
    (outer.contains(x) ? last : order).push_back(vars_.at(x));
  }
  order.push_back(vo);
  order.insert(order.end(), last.begin(), last.end());
  r.reorder(order).vectorize(vi, c.width).unroll(vi).unroll(yi);
  for (Id x : m.left)
    if (constant(x)) r.bound(vars_.at(x), 0, static_cast<int>(axis(x).extent));

  const Var &lane = block.lane, &row = block.row;
  acc.compute_at(r, yo);
  if (block.apart)
    acc.bound(lane, 0, panel).bound(row, 0, c.rows);
  else
    acc.bound_extent(lane, panel).bound_extent(row, c.rows);
  // Lanes side by side, also where results lie along the rows: v[d,j] beside u[j,d] in tiles of whole d.
  auto first = [&](std::vector<Var> known) {
    for (const Var& x : block.args)
      if (std::ranges::none_of(known, [&](const Var& other) { return other.same_as(x); })) known.push_back(x);
    return known;
  };
  acc.reorder_storage(c.phase != kNone ? first({lane, vars_.at(c.phase)}) : first({lane}));
  acc.vectorize(lane, c.width).unroll(lane).unroll(row);
  for (size_t i = 0; i < steps.loops.size(); ++i) {
    const RDom& k = steps.loops[i].k;
    std::vector<VarOrRVar> walk = {lane, row};
    if (c.phase != kNone) walk.push_back(vars_.at(c.phase));
    for (int d = 0; d < k.dimensions(); ++d) walk.push_back(RVar(k[d]));
    for (const Var& x : block.args)
      if (std::ranges::none_of(walk, [&](const VarOrRVar& w) { return w.name() == x.name(); })) walk.push_back(x);
    acc.update(static_cast<int>(i)).reorder(walk).vectorize(lane, c.width).unroll(lane).unroll(row);
  }
  if (c.phase != kNone) {
    // Which steps of the sum belong to which phase is known only if both are.
    Var p = vars_.at(c.phase);
    const RDom& k = steps.loops[0].k;
    r.unroll(p);
    acc.bound_extent(p, phases(c)).unroll(p);
    acc.update(0).unroll(p);
    for (int i = 0; i < k.dimensions(); ++i) {
      Id x = m.reduced[m.reduced.size() - 1 - static_cast<size_t>(i)];
      if (axis(x).extent <= kMaxUnrolled && has_with(a, conjuncts(*spec_.arena, m.condition), x, c.phase)) acc.update(0).unroll(RVar(k[i]));
    }
  }
  for (Part& p : packs) {
    p.func.compute_at(r, vo).bound_extent(v, panel);
    if (p.turned)
      turn(p.turned, p.func, c.width);
    else
      p.func.vectorize(v, c.width).unroll(v);
  }
  publish(m, r, true);
}

}  // namespace xhat::runtime
