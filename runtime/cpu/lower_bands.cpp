// Contractions within a triangle or a band: with conditions that are linear in the axes, such as k <= i, i - 64 < k, j <= i.
//
//   for each block of results that may have any:
//     for each step k at which the conditions hold in all of the block:   as if there were none
//     for each other step at which they may hold somewhere:               chosen in every lane
//
// So a triangle costs half of the square, and a band its width and a block. Conditions on results alone, whatever they ask, are asked once, of
// the finished sums. Steps run in their order, but those of a block in which a band both begins and ends.
#include <algorithm>

#include "expr/core/conditions.h"
#include "expr/core/reduction_order.h"
#include "expr/core/scalar.h"
#include "runtime/cpu/lowering.h"

namespace xhat::runtime {
namespace {

constexpr int64_t kBlocksAlong = 2;  // of a sum, for its blocks to differ

}  // namespace

std::optional<Lowering::Band> Lowering::band(const SpecMember& m, const Contraction& c, Id condition) const {
  const Arena& a = *spec_.arena;
  const Node& n = a[condition];
  if ((n.op != Op::lt && n.op != Op::le) || a[n.arg(0)].type != DType::i64 || c.phase != kNone) return {};
  Band b{condition, linear(a, n.arg(1))};
  add_scaled(b.form, linear(a, n.arg(0)), -1);
  if (n.op == Op::lt) --b.form.constant;
  auto summed = [&](Id x) { return std::ranges::find(m.reduced, x) != m.reduced.end(); };
  for (const auto& [node, times] : b.form.terms) {
    if (a[node].op == Op::axis && summed(node)) {
      if (b.summed != kNone) return {};
      b.summed = node;
    } else if (a[node].op != Op::axis) {
      const bool moves = std::ranges::any_of(a[node].free_axes(), [&](Id x) { return x == c.v || x == c.y || summed(x); });
      if (moves || std::ranges::any_of(reachable(a, node), [&](Id x) { return is_read(a[x].op); })) return {};
    }
  }
  const bool along_v = b.form.terms.contains(c.v), along_y = b.form.terms.contains(c.y);
  const int64_t columns = int64_t{c.width} * c.vectors;
  if (b.summed == kNone) {
    const bool blocks = (along_v && axis(c.v).extent > columns) || (along_y && axis(c.y).in_tile() > c.rows);
    return blocks ? std::optional(b) : std::nullopt;
  }
  const int64_t widest = std::max(along_v ? columns : 0, along_y ? int64_t{c.rows} : 0);
  return widest > 0 && axis(b.summed).in_tile() >= kBlocksAlong * widest ? std::optional(b) : std::nullopt;
}

// Blocks of their own have as many results each, wherever they lie: the last ones overlap those before, and write only what these do not.
Lowering::Block Lowering::block_of(const SpecMember& m, const Contraction& c, bool whole_rows, bool apart) const {
  Block b{apart, vars_.at(c.v), vars_.at(c.y), func_vars(m), {}, {}, left_locals(m), {}, {}};
  const Expr v = b.lane, y = b.row, end = extent(c.y);
  b.of_result = exprs(b.args);
  b.row_at = y;
  if (!apart) {
    if (!whole_rows) b.first[c.y] = Halide::min(y, end - 1);
    b.last = b.here = b.first;
    return b;
  }
  const int panel = c.width * c.vectors, rows = c.rows;
  const Var columns_block("vb"), rows_block("yb");
  b.lane = Var("lane");
  b.row = Var("row_of_block");
  std::vector<Var> args = {b.lane, b.row};
  std::vector<Expr> at;
  auto begin = [&](const Expr& number, int size, int64_t extent) {
    const Expr from = number * size;
    return extent % size == 0 ? from : Halide::min(from, static_cast<int>(extent) - size);
  };
  auto place = [&](const Expr& x, int size, int64_t extent) {
    return extent % size == 0 ? x % size : Halide::unsafe_promise_clamped(x - begin(x / size, size, extent), 0, size - 1);
  };
  const int64_t wide = axis(c.v).extent, high = axis(c.y).extent;
  at.push_back(place(v, panel, wide));
  at.push_back(whole_rows ? place(y, rows, high) : y % rows);
  for (const Var& x : b.args)
    if (x.name() != vars_.at(c.v).name() && x.name() != vars_.at(c.y).name()) {
      args.push_back(x);
      at.emplace_back(x);
    }
  args.push_back(columns_block);
  args.push_back(rows_block);
  at.push_back(v / panel);
  at.push_back(y / rows);
  b.args = args;
  b.of_result = at;
  b.last = b.here = b.first;
  b.first[c.v] = begin(columns_block, panel, wide);
  b.last[c.v] = b.first[c.v] + (panel - 1);
  b.here[c.v] = b.first[c.v] + b.lane;
  b.first[c.y] = whole_rows ? begin(rows_block, rows, high) : rows_block * rows;
  b.row_at = b.first[c.y] + b.row;
  const Expr last = b.first[c.y] + (rows - 1);
  b.last[c.y] = whole_rows ? last : Halide::min(last, end - 1);
  b.here[c.y] = whole_rows ? b.row_at : Halide::min(b.row_at, end - 1);
  return b;
}

// Does the condition hold somewhere in the block (likeliest), or everywhere?
Expr Lowering::at_end(const Band& b, const Contraction& c, const Block& block, Emitter::Axes axes, bool likeliest) const {
  for (Id x : {c.v, c.y}) {
    const auto term = b.form.terms.find(x);
    if (term != b.form.terms.end()) axes[x] = ((term->second > 0) == likeliest ? block.last : block.first).at(x);
  }
  return emit_.condition(b.condition, axes);
}

// The loops of the sum over what the bands leave to this tile.
Lowering::BandSteps::Loop Lowering::loop_within(const SpecMember& m, const Contraction& c, const Block& block,
                                                const std::vector<Band>& bands) const {
  Arena& a = *spec_.arena;
  Emitter::Axes least = left_locals(m), most = least;  // of the tile
  for (Id x : {c.v, c.y}) {
    least[x] = 0;
    most[x] = extent(x) - 1;
  }
  Halide::Region ranges;
  for (size_t i = m.reduced.size(); i-- > 0;) {
    const Id x = m.reduced[i];
    Expr from = 0, to = extent(x);
    for (const Band& b : bands) {
      if (b.summed != x || axis(x).kind() != AxisKind::untiled || std::abs(b.form.terms.at(x)) != 1) continue;
      Linear rest = b.form;
      rest.terms.erase(x);
      const Id bound = to_index(a, rest);
      auto in_tile = [&](Id free) { return free == c.v || free == c.y || axis(free).kind() == AxisKind::point; };
      if (!std::ranges::all_of(a[bound].free_axes(), in_tile)) continue;
      Emitter::Axes at = least;
      for (const auto& [node, times] : rest.terms)
        if (times > 0 && (node == c.v || node == c.y)) at[node] = most[node];
      const Expr reach = emit_.local_index(bound, kNone, at);
      if (b.is_begin())
        from = Halide::max(from, -reach);
      else
        to = Halide::min(to, reach + 1);
    }
    ranges.emplace_back(from, Halide::max(to - from, 0));
  }
  BandSteps::Loop loop{RDom(ranges), block.here, a.boolean(true)};
  for (size_t i = 0; i < m.reduced.size(); ++i) loop.axes[m.reduced[m.reduced.size() - 1 - i]] = loop.k[static_cast<int>(i)];
  return loop;
}

Lowering::BandSteps Lowering::band_steps(const SpecMember& m, const Contraction& c, bool whole_rows) const {
  Arena& a = *spec_.arena;
  BandSteps steps;
  std::vector<Band> of_results, summed;
  std::vector<Id> everywhere;  // the same in all of a block, and known without data
  Id chosen = a.boolean(true);
  auto both = [&](Id x, Id y) { return is_true(a, x) ? y : a.land(x, y); };
  for (Id part : conjuncts(a, m.condition)) {
    if (is_true(a, part)) continue;
    auto within = band(m, c, part);
    bool of_sum = std::ranges::any_of(m.reduced, [&](Id x) { return a[part].depends_on(x); });
    if (within && of_sum && within->summed == kNone) {  // k - i <= k is not about k
      within->condition = part = a.binary(Op::le, a.integer(0), to_index(a, within->form));
      of_sum = false;
    }
    const bool reads = std::ranges::any_of(reachable(a, part), [&](Id x) { return is_read(a[x].op); });
    const bool differs = a[part].depends_on(c.v) || a[part].depends_on(c.y) || reads;
    if (within) (of_sum ? summed : of_results).push_back(*within);
    if (differs && !of_sum) steps.kept.push_back(part);
    if (!differs) everywhere.push_back(part);
    if (differs && of_sum && !within) chosen = both(chosen, part);
  }
  steps.block = block_of(m, c, whole_rows, !summed.empty() || !of_results.empty());
  std::ranges::stable_partition(summed, [](const Band& b) { return b.is_begin(); });
  auto loop = [&]() -> BandSteps::Loop& {
    BandSteps::Loop& l = steps.loops.emplace_back(loop_within(m, c, steps.block, summed));
    for (Id part : everywhere) l.k.where(emit_.condition(part, l.axes));
    for (const Band& b : of_results) l.k.where(at_end(b, c, steps.block, l.axes, true));
    l.chosen = chosen;
    return l;
  };
  // Where the first band fails in a part of the block, whatever the others do; where it holds and the second fails; ...
  auto at_edge = [&](size_t edge) {
    BandSteps::Loop& l = loop();
    for (size_t i = 0; i < summed.size(); ++i) {
      l.k.where(at_end(summed[i], c, steps.block, l.axes, i >= edge));
      if (i == edge) l.k.where(!at_end(summed[i], c, steps.block, l.axes, false));
      if (i >= edge) l.chosen = both(l.chosen, summed[i].condition);
    }
  };
  const size_t begins = static_cast<size_t>(std::ranges::count_if(summed, &Band::is_begin));
  for (size_t i = 0; i < begins; ++i) at_edge(i);
  BandSteps::Loop& inside = loop();
  for (const Band& b : summed) inside.k.where(at_end(b, c, steps.block, inside.axes, false));
  for (size_t i = begins; i < summed.size(); ++i) at_edge(i);
  return steps;
}

// The same expression in another of the loops.
Expr Lowering::in_loop(const Expr& e, const RDom& from, const RDom& to) {
  std::map<std::string, Expr> steps;
  for (int i = 0; i < from.dimensions(); ++i) steps[from[i].name()] = to[i];
  return from.same_as(to) ? e : Halide::Internal::substitute(steps, e);
}

// The sum, where there are terms.
Expr Lowering::only_where(const std::vector<Id>& conditions, const Expr& sum, const SpecMember& m) const {
  if (conditions.empty()) return sum;
  Arena& a = *spec_.arena;
  Id all = conditions[0];
  for (Id c : conditions)
    if (c != all) all = a.land(all, c);
  Emitter emit = emit_;
  emit.given[m.body] = sum;
  return reading_always(emit.value(a.select(all, m.body, a.constant(accumulated(m), identity_of(m.op))), left_locals(m)), {sum});
}

}  // namespace xhat::runtime
