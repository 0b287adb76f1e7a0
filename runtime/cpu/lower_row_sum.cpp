// Sums whose terms lie side by side: vectors along the terms, folded at the end, with as many sums in registers as share what they read.
#include <algorithm>

#include "cse/normalize/auto_inliner.h"
#include "expr/core/conditions.h"
#include "runtime/cpu/lowering.h"

namespace xhat::runtime {
namespace {

constexpr int kLanes = 64;       // accumulators of a row sum: 4 vectors of 16 keep two fma ports busy for 4 cycles each
constexpr int64_t kLatency = 4;  // cycles of an fma, two of which begin in each
constexpr int64_t kColumns = 8;  // of short rows, whose terms are written out

}  // namespace

// Beside another choice Halide 21 refuses what it bounds where more than comparisons of places chooses the terms: "argument of Not is not a
// bool".
bool Lowering::places_choose_terms(const SpecMember& m) const {
  Arena& a = *spec_.arena;
  return std::ranges::all_of(conjuncts(a, m.condition), [&](Id condition) {
    const Node& c = a[condition];
    if (is_true(a, condition)) return true;
    if ((c.op != Op::lt && c.op != Op::le && c.op != Op::eq) || a[c.arg(0)].type != DType::i64) return false;
    Linear both = linear(a, c.arg(0));
    add_scaled(both, linear(a, c.arg(1)), 1);
    return std::ranges::all_of(both.terms, [&](const auto& term) { return a[term.first].op == Op::axis; });
  });
}

// Terms of the shortest row that is summed in vectors. With a choice, values that are read under another one are refused, too.
int Lowering::shortest_row(const SpecMember& m) const { return is_true(*spec_.arena, m.condition) ? kFewestLanes : natural(widest(m)); }

// Of vectors along the terms: a short row has shorter ones, and where halves cost half, one that they fill better.
int Lowering::width_of_sum(const SpecMember& m, Id v) const {
  int width = natural(widest(m));
  if (!constant(v)) return width;
  while (width > kFewestLanes && axis(v).extent < width) width /= 2;
  auto lanes = [&](int64_t of) { return (axis(v).extent + of - 1) / of * of; };
  const bool halves = width == natural(widest(m)) && halves_cost_half() && lanes(width / 2) < lanes(width);
  return halves ? width / 2 : width;
}

// Lanes that the terms of a sum are added up in. A sum that is recomputed has the same, whatever is beside it: all that decides is how long
// the row is, and whether the last axes of the result are so short that their sums share what they read.
int Lowering::lanes_of_sum(const std::vector<size_t>& group, Id v) const {
  constexpr int64_t kMost = 12;
  const Arena& a = *spec_.arena;
  const SpecMember& m = spec_.members[group[0]];
  const int width = width_of_sum(m, v);
  int lanes = kLanes * 4 / static_cast<int>(byte_size(widest(m)));
  while (constant(v) && lanes > width && axis(v).extent < 2 * lanes) lanes /= 2;
  if (!ends_by_data(group, v).empty() || in_segments(m, m.left))
    lanes = width;  // segments are short, and of many places accumulators lie in memory
  // Of sums that share nothing, each reads rows of its own, far from the others'.
  auto shares = [&](Id x) {
    return std::ranges::any_of(reachable(a, m.body),
                               [&](Id id) { return is_read(a[id].op) && a[id].depends_on(v) && !a[id].depends_on(x); });
  };
  const auto dims = tile_dimensions(spec_, m);
  int64_t beside = 1;
  for (size_t n = dims.size(); n-- > 0;) {
    const Id x = m.left[dims[n]];
    if (!constant(x) || beside * axis(x).extent > kMost || !shares(x)) break;
    beside *= axis(x).extent;
  }
  // Sums side by side hide the latency of an fma as lanes of one do.
  return beside > 1 ? std::min<int>(lanes, width * std::max(1, static_cast<int>(kLatency / beside))) : lanes;
}

// The block of sums that loads least for each of them: dw[k,c,r,s] = sum(i,j: dy[k,i,j]*x[c,i+r,j+s]) with four k and three s loads seven
// vectors for twelve products.
Lowering::SumsInRegisters Lowering::sums_in_registers(const std::vector<size_t>& group, Id v) const {
  const Arena& a = *spec_.arena;
  const SpecMember& m = spec_.members[group[0]];
  std::vector<Id> roots;
  for (size_t g : group) roots.push_back(spec_.members[g].body);
  std::vector<std::pair<Id, double>> reads;  // and what a vector of each costs
  int operations = 0;
  for (Id id : reachable(a, roots)) {
    if (!a[id].depends_on(v)) continue;
    if (!is_read(a[id].op)) {
      ++operations;
      continue;
    }
    // A read that does not go along memory is one load for each lane.
    const bool beside = step_along(*spec_.arena, read_indices(a[id]).back(), v) == 1;
    reads.emplace_back(id, beside ? load_price(bytes_in_tile(id)) : static_cast<double>(natural(widest(m))));
  }
  // What is computed of a term takes registers, too.
  const int64_t registers = operations <= static_cast<int>(group.size()) && target_.natural_vector_size<float>() == 16 ? 24 : 12;
  const int64_t most = registers * width_of_sum(m, v) / lanes_of_sum(group, v);
  // What is asked before a row is asked of one result.
  const std::vector<Id> ends = in_segments(m, m.reduced) ? ties_by_data(group) : ends_by_data(group, v);
  SumsInRegisters best, now;
  auto loads = [&](const SumsInRegisters& s) {
    double all = 0;
    for (auto [read, price] : reads) {
      double of_read = price;
      for (const auto& [x, n] : s.along)
        if (a[read].depends_on(x)) of_read *= static_cast<double>(n);
      all += of_read;
    }
    return all / static_cast<double>(s.sums);
  };
  now.sums = static_cast<int64_t>(group.size());
  const auto dims = tile_dimensions(spec_, m);
  auto choose = [&](auto& self, size_t n) -> void {
    if (n == dims.size()) {
      now.loads = loads(now);
      if (best.loads == 0 || now.loads < 0.98 * best.loads) best = now;
      return;
    }
    self(self, n + 1);
    const Id x = m.left[dims[dims.size() - 1 - n]];
    if (!constant(x) || std::ranges::any_of(ends, [&](Id end) { return a[end].depends_on(x); })) return;
    const SumsInRegisters before = now;
    for (int64_t of = 2; of <= axis(x).extent && before.sums * of <= most; ++of) {
      if (axis(x).extent % of != 0) continue;
      now.along.emplace_back(x, of);
      now.sums = before.sums * of;
      self(self, n + 1);
      now = before;
    }
  };
  choose(choose, 0);
  return best;
}

// Summed axes whose few terms are written out for each vector of terms along v, in place of a loop around all of v: those of the columns of
// short rows that vectors go across, x[nb[n,k],d] or x[n,d]. What such columns share (indices, cache lines) is loaded once.
std::vector<Id> Lowering::terms_of_columns(const std::vector<size_t>& group, Id v) const {
  const Arena& a = *spec_.arena;
  const SpecMember& m = spec_.members[group[0]];
  auto across = [&](Id id) {
    return is_read(a[id].op) && a[id].depends_on(v) && step_along(*spec_.arena, read_indices(a[id]).back(), v) != 1;
  };
  auto column = [&](Id x) {
    return constant(x) && !moves_window(m, x) && std::ranges::any_of(group, [&](size_t g) {
             return std::ranges::any_of(reachable(a, spec_.members[g].body),
                                        [&](Id id) { return across(id) && a[read_indices(a[id]).back()].depends_on(x); });
           });
  };
  const int64_t of_terms = body_ps(group);
  std::vector<Id> found;
  int64_t terms = 1;
  for (Id x : m.reduced) {
    if (x == v || !column(x) || terms * axis(x).extent > kColumns || terms * axis(x).extent * of_terms > kWrittenOut_ps) continue;
    terms *= axis(x).extent;
    found.push_back(x);
  }
  return found;
}

// Terms that take long hide the latency of an addition by themselves: of their lanes fewer are written out, in a loop, which compiles in a part
// of the time.
int Lowering::lanes_written_out(const std::vector<size_t>& group, const std::vector<Id>& columns, int lanes, int width) const {
  int64_t of_terms = body_ps(group);
  for (Id x : columns) of_terms *= axis(x).extent;
  while (lanes > width && lanes / width * of_terms > kWrittenOut_ps) lanes /= 2;
  return lanes;
}

void Lowering::row_sum(const std::vector<size_t>& group, Id v) {
  const SpecMember& m = spec_.members[group[0]];
  const int width = width_of_sum(m, v);
  bool part = !constant(v);
  const int lanes = lanes_of_sum(group, v);
  Var u("u");
  std::vector<Var> left = func_vars(m), args = {u};
  args.insert(args.end(), left.begin(), left.end());
  // Results at places that segments name: the loop over places stands where its segment is known, and all accumulators lie in the tile.
  const bool spread = in_segments(m, m.left);
  const SumsInRegisters block = spread ? SumsInRegisters{} : sums_in_registers(group, v);
  // Loops over the result's axes: those of a block, and those around it.
  struct Loop {
    Id axis;
    Var var;
    int64_t of_block;  // of an axis that blocks cut
  };
  std::vector<Loop> inside, outside;
  const auto dims = tile_dimensions(spec_, m);
  for (size_t i = 0; i < left.size(); ++i) {
    const Id x = m.left[dims[dims.size() - 1 - i]];
    const auto found = std::ranges::find(block.along, x, &std::pair<Id, int64_t>::first);
    const int64_t in_block = found == block.along.end() ? 1 : found->second;
    if (in_block > 1) inside.push_back({x, left[i], in_block});
    if (in_block == 1)
      outside.push_back({x, left[i], 0});
    else if (in_block < axis(x).extent)
      outside.push_back({x, Var(left[i].name() + "_blocks"), in_block});
  }

  Func acc(name("acc", m.tensor)), one(name("vec", m.tensor));
  std::vector<Expr> at = exprs(args);
  define(acc, at, identities(group));

  // Full blocks of `lanes`, then what is left.
  std::vector<Id> others;
  const std::vector<Id> columns = terms_of_columns(group, v);
  Expr n = extent(v);
  for (size_t i = m.reduced.size(); i-- > 0;)
    if (m.reduced[i] != v && std::ranges::find(columns, m.reduced[i]) == columns.end()) others.push_back(m.reduced[i]);
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
  auto terms = [&](const std::vector<Expr>& place, const RDom& r, const Expr& along) {
    std::vector<Expr> now;
    for (size_t i = 0; i < group.size(); ++i) now.push_back(element(acc, place, i, group.size()));
    now = add_terms(emit_, group, columns, bind(r, along), std::move(now));
    mention(r, now[0]);
    return now;
  };
  RDom blocks = domain(n / lanes);
  ask_before_blocks(blocks, ends_by_data(group, v), bind(blocks, 0), v, blocks[0] * lanes, lanes);
  const bool segments = spread || in_segments(m, m.reduced);
  auto ask_segments = [&](RDom& r) {
    if (!segments) return;
    for (Id tie : ties_by_data(group)) emit_.given.erase(tie);
    Loops loops{r, bind(r, r[0])};
    ask_before_row(loops, group, v);
    r = loops.r;
  };
  ask_segments(blocks);
  define(acc, at, terms(at, blocks, blocks[0] * lanes + u));
  bool tail = part || axis(v).extent % lanes != 0;
  // The last block of a row that has a whole one overlaps the one before, whose lanes it leaves as they are: what is summed stays in
  // registers. Else what is left, element by element.
  auto plain = [&](size_t g) { return places_choose_terms(spec_.members[g]); };
  const bool overlaps = tail && !part && std::ranges::all_of(group, plain);
  RDom rest;
  if (overlaps) {
    const int before = lanes - static_cast<int>(axis(v).extent % lanes);
    rest = domain(1);
    ask_segments(rest);
    emit_.only = u >= before;
    define(acc, at, terms(at, rest, rest[0] + (n - lanes) + u));
    emit_.only = {};
  } else if (tail) {
    rest = domain(n % lanes);
    ask_segments(rest);
    std::vector<Expr> in_tail = at;
    in_tail[0] = rest[0];
    define(acc, in_tail, terms(in_tail, rest, (n / lanes) * lanes + rest[0]));
  }
  if (segments) emit_.given.clear();
  acc.bound(u, 0, lanes).vectorize(u, width).unroll(u);
  auto bounded = [&](const Loop& l) { return spread && axis(l.axis).kind() != AxisKind::point && !ends_by_data(group, l.axis).empty(); };
  auto order = [&](const VarOrRVar& first, const RDom& r, int from) {
    std::vector<VarOrRVar> list = {first};
    for (const Loop& l : inside) list.emplace_back(l.var);
    if (spread && from == 0) list.emplace_back(RVar(r[from++]));
    for (const Loop& l : outside)
      if (bounded(l)) list.emplace_back(l.var);
    for (int i = from; i <= static_cast<int>(others.size()); ++i) list.push_back(RVar(r[i]));
    for (const Loop& l : outside)
      if (l.of_block == 0 && !bounded(l)) list.emplace_back(l.var);
    return list;
  };
  const int written_out = lanes_written_out(group, columns, lanes, width);
  auto in_vectors = [&](Halide::Stage stage, const RDom& r) {
    Var several("several");
    stage.reorder(order(u, r, 0)).split(u, several, u, written_out).vectorize(u, width).unroll(u);
  };
  in_vectors(acc.update(0), blocks);
  if (overlaps)
    in_vectors(acc.update(1), rest);
  else if (tail)
    acc.update(1).reorder(order(RVar(rest[0]), rest, 1)).vectorize(RVar(rest[0]), width, TailStrategy::GuardWithIf);
  for (const Loop& l : inside) {
    acc.bound_extent(l.var, static_cast<int>(l.of_block));
    for (int stage = 0; stage < 2 + tail; ++stage) (stage == 0 ? Halide::Stage(acc) : acc.update(stage - 1)).unroll(l.var);
  }

  // Tree: lanes -> one vector, then its halves.
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
  std::vector<Func> vectors = {one};
  Func total = fold_halves(vectors, width, group, u, left);
  std::vector<VarOrRVar> walk;
  for (const Loop& l : inside) {
    walk.emplace_back(l.var);
    const auto cut = std::ranges::find(outside, l.axis, &Loop::axis);
    if (cut == outside.end()) continue;
    Var within(l.var.name() + "_within");
    total.bound(l.var, 0, static_cast<int>(axis(l.axis).extent)).split(l.var, cut->var, within, static_cast<int>(l.of_block));
    walk.back() = within;
  }
  std::vector<Var> around_blocks;
  for (const Loop& l : outside) around_blocks.push_back(l.var);
  walk.insert(walk.end(), around_blocks.begin(), around_blocks.end());
  if (walk.size() > 1) total.reorder(walk);
  if (spread)
    place(acc);
  else
    place_beside(acc, total, around_blocks);
  std::vector<Var> innermost;
  if (!walk.empty()) innermost.push_back(walk[0].var);
  for (const Func& f : vectors) place_beside(f, total, innermost);

  // Copies with a border: in the loop around those that a window moves along. The loops over results are those of the fold, in which
  // the sums are computed block by block.
  const auto whole_tile = Halide::LoopLevel::root();
  std::vector<std::pair<Id, Halide::LoopLevel>> around;
  for (const Loop& l : inside) around.emplace_back(l.axis, whole_tile);
  for (int i = 0; i <= static_cast<int>(others.size()); ++i)
    around.emplace_back(i == 0 ? v : others[static_cast<size_t>(i) - 1], tail ? whole_tile : Halide::LoopLevel(acc, RVar(blocks[i])));
  for (const Loop& l : outside) around.emplace_back(l.axis, Halide::LoopLevel(total, l.var));
  size_t moved = around.size();
  while (moved > 0 && !moves_window(m, around[moved - 1].first)) --moved;
  if (moved < around.size()) pads_in_loop(m, around[moved].second);
  place(total);
  results_of(group, [&](size_t i) { return element(total, exprs(left), i, group.size()); });
}

// Adds the first half of a vector's lanes to the second until one is left, in the order of `pairwise`, and returns what has that one; `vectors`
// begins with the vector and gets each half. Each row is folded by itself, in registers: to read the lanes of several rows side by side is a
// transposition, which costs as many instructions as there are lanes for each row, and LLVM half a second.
Func Lowering::fold_halves(std::vector<Func>& vectors, int width, const std::vector<size_t>& group, const Var& u,
                           const std::vector<Var>& left) const {
  const size_t tensor = spec_.members[group[0]].tensor;
  std::vector<Expr> first = exprs(left), second = first;
  first.insert(first.begin(), Expr(u));
  second.insert(second.begin(), Expr(u));
  auto of_two = [&](const Func& f) {
    std::vector<Expr> both;
    for (size_t i = 0; i < group.size(); ++i)
      both.push_back(Emitter::combine(spec_.members[group[i]].op, element(f, first, i, group.size()), element(f, second, i, group.size())));
    return both;
  };
  auto whole = [&](Func f, int lanes) { f.bound(u, 0, lanes).vectorize(u, lanes); };
  whole(vectors.back(), width);
  for (int lanes = width / 2; lanes > 1; lanes /= 2) {
    Func half(name("half", tensor));
    second[0] = u + lanes;
    define(half, first, of_two(vectors.back()));
    whole(half, lanes);
    vectors.push_back(half);
  }
  Func total(name("fold", tensor));
  first[0] = 0, second[0] = 1;
  define(total, exprs(left), of_two(vectors.back()));
  return total;
}

}  // namespace xhat::runtime
