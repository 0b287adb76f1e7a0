// Reductions of a kernel; the kinds are listed in lower.cpp.
#include <algorithm>
#include <array>

#include "cse/normalize/auto_inliner.h"
#include "expr/core/conditions.h"
#include "expr/core/reduction_order.h"
#include "runtime/cpu/lowering.h"

namespace xhat::runtime {

void Lowering::place_beside(Func inner, Func outer, const std::vector<Var>& left) const {
  if (left.empty())
    inner.compute_root();
  else
    inner.compute_at(outer, left[0]);
}

Expr Lowering::pairwise(Op op, std::vector<Expr> parts) {
  while (parts.size() > 1) {
    std::vector<Expr> next;
    size_t half = parts.size() / 2;
    for (size_t i = 0; i < half; ++i) next.push_back(Emitter::combine(op, parts[i], parts[i + half]));
    if (parts.size() % 2) next.push_back(parts.back());
    parts = next;
  }
  return parts[0];
}

// A comparison of a place with data, of places as they are counted: Halide begins and ends no loop by what is compared in 64 bits.
Expr Lowering::compared_as_places(Id condition, const Emitter::Axes& axes) const {
  const Expr e = emit_.condition(condition, axes);
  const auto place = [](const Expr& x) {
    const Halide::Type t = Halide::Int(32);
    const Expr narrow = Halide::Internal::lossless_cast(t, x);
    return narrow.defined() ? narrow : Halide::cast(t, Halide::clamp(x, Halide::cast(x.type(), t.min()), Halide::cast(x.type(), t.max())));
  };
  if (const auto* lt = e.as<Halide::Internal::LT>(); lt && lt->a.type() == Halide::Int(64)) return place(lt->a) < place(lt->b);
  if (const auto* le = e.as<Halide::Internal::LE>(); le && le->a.type() == Halide::Int(64)) return place(le->a) <= place(le->b);
  return e;
}

// Comparisons of places with data that all sums of a group have, and that tie summed axes to the result: o[r] <= t and t < o[r+1].
std::vector<Id> Lowering::ties_by_data(const std::vector<size_t>& group) const {
  const SpecMember& m = spec_.members[group[0]];
  std::vector<Id> ties;
  for (Id part : common_conditions(group)) {
    auto about = [&](const std::vector<Id>& axes) {
      return std::ranges::any_of(axes, [&](Id x) { return (*spec_.arena)[part].depends_on(x); });
    };
    if (compares_place_with_data(*spec_.arena, part) && about(m.left) && about(m.reduced)) ties.push_back(part);
  }
  return ties;
}

// Those by which data bound the places along x, where x is t.
std::vector<Id> Lowering::ends_by_data(const std::vector<size_t>& group, Id x) const {
  std::vector<Id> ends = ties_by_data(group);
  std::erase_if(ends, [&](Id tie) { return !is_end_by_data(*spec_.arena, tie, x); });
  return ends;
}

// Do data that differ along x bound the places along another axis?
bool Lowering::bounds_by_data(const std::vector<size_t>& group, Id x) const {
  const SpecMember& m = spec_.members[group[0]];
  auto places = [&](Id y) {
    return y != x && std::ranges::any_of(ends_by_data(group, y), [&](Id end) { return (*spec_.arena)[end].depends_on(x); });
  };
  return std::ranges::any_of(m.left, places) || std::ranges::any_of(m.reduced, places);
}

// Do data bound the places along one of these axes on both sides? Then each has to do with few of the others.
bool Lowering::in_segments(const SpecMember& m, const std::vector<Id>& along) const {
  const auto me = static_cast<size_t>(&m - spec_.members.data());
  return std::ranges::any_of(along, [&](Id x) { return axis(x).kind() != AxisKind::point && ends_by_data({me}, x).size() > 1; });
}

// Of so many places along x from the first one on, those that lie beyond such an end altogether are passed over: the loop over blocks of them
// begins and ends where data say.
void Lowering::ask_before_blocks(RDom& r, const std::vector<Id>& ends, Emitter::Axes axes, Id x, const Expr& first, int places) const {
  const Arena& a = *spec_.arena;
  for (Id end : ends) {
    const bool below = a[a[end].arg(0)].depends_on(x);  // the place that is nearest to holding
    const int64_t step = *step_along(*spec_.arena, a[end].arg(below ? 0 : 1), x);
    axes[x] = (step > 0) == below ? first : first + (places - 1);
    r.where(compared_as_places(end, axes));
  }
}

// What ties summed axes to a result by data and is the same in all lanes (segments between offsets, rows of some length) is asked once for all
// lanes, and where it does not hold nothing is loaded: most pairs of a segment and a row are none. (Of 401 rows of 67 numbers, each of which
// takes every other one at random, that would take three times as long: such conditions choose in every lane.)
void Lowering::ask_before_row(Loops& l, const std::vector<size_t>& group, Id v) {
  const Arena& a = *spec_.arena;
  const SpecMember& m = spec_.members[group[0]];
  if (!vectors_ || v == kNone) return;
  for (Id part : ties_by_data(group)) {
    if (a[part].depends_on(v)) continue;
    auto ends = [&](Id x) {
      const std::vector<Id> its = ends_by_data(group, x);
      return axis(x).kind() != AxisKind::point && std::ranges::find(its, part) != its.end();
    };
    const bool of_loop = std::ranges::any_of(m.left, ends) || std::ranges::any_of(m.reduced, ends);
    l.r.where(of_loop ? compared_as_places(part, l.axes) : emit_.condition(part, l.axes));
    emit_.given[part] = Halide::Internal::const_true();
  }
  // So is a range that begins or ends where a result lies, k <= i: then the loop begins or ends there. Halide solves no others.
  for (Id part : common_conditions(group)) {
    const Node& n = a[part];
    if ((n.op != Op::lt && n.op != Op::le) || a[n.arg(0)].type != DType::i64 || n.depends_on(v)) continue;
    Linear between = linear(a, n.arg(1));
    add_scaled(between, linear(a, n.arg(0)), -1);
    const auto is_axis = [&](const auto& term) { return a[term.first].op == Op::axis; };
    const auto summed = [&](const auto& term) { return term.second != 0 && std::ranges::find(m.reduced, term.first) != m.reduced.end(); };
    if (!std::ranges::all_of(between.terms, is_axis) || std::ranges::none_of(between.terms, summed)) continue;
    l.r.where(emit_.condition(part, l.axes));
    emit_.given[part] = Halide::Internal::const_true();
  }
}

std::vector<Id> Lowering::common_conditions(const std::vector<size_t>& group) const {
  std::vector<Id> common = conjuncts(*spec_.arena, spec_.members[group[0]].condition);
  for (const SpecMember* m : members_of(group)) {
    const std::vector<Id> its = conjuncts(*spec_.arena, m->condition);
    std::erase_if(common, [&](Id part) { return std::ranges::find(its, part) == its.end(); });
  }
  return common;
}

void Lowering::column_sum(const std::vector<size_t>& group, Id v) {
  const SpecMember& m = spec_.members[group[0]];
  std::vector<Var> left = func_vars(m);
  std::vector<Expr> at = exprs(left);
  Func acc(name("acc", m.tensor));
  define(acc, at, identities(group));
  Loops loops = loops_of(m);
  const bool beside = group == beside_.sums;
  const bool vectors = v != kNone && std::ranges::find(m.left, v) != m.left.end();
  // The gradient of a segment's sum: each term goes to the few results along v that the data name.
  const std::vector<Id> ends = vectors && vectors_ && !beside ? ends_by_data(group, v) : std::vector<Id>{};
  if (beside)
    give_map(loops.axes);
  else
    ask_before_row(loops, group, v);
  auto& [r, axes] = loops;
  const int width = natural(widest(m));
  if (!ends.empty()) ask_before_blocks(r, ends, axes, v, axes.at(v) / width * width, width);
  define(acc, at, steps(group, acc, at, axes, r));
  emit_.given.clear();
  // Where data bound the places of results, the loop over these stands inside the loops over what the data depend on.
  std::vector<Var> inside;
  if (vectors) inside.push_back(vars_.at(v));
  for (Id x : m.left)
    if ((!vectors || x != v) && !beside && axis(x).kind() != AxisKind::point && !ends_by_data(group, x).empty())
      inside.push_back(vars_.at(x));
  std::vector<VarOrRVar> order(inside.begin(), inside.end());
  for (int i = 0; i < r.dimensions(); ++i) order.push_back(RVar(r[i]));
  for (const Var& x : left)
    if (std::ranges::none_of(inside, [&](const Var& y) { return y.name() == x.name(); })) order.push_back(x);
  if (order.size() > 1) acc.update(0).reorder(order);
  write_out(acc.update(0), m);
  if (vectors) {
    order_rows(acc, m, v);
    vectorize(acc, vars_.at(v), v, widest(m), 1);
    vectorize(acc.update(0), vars_.at(v), v, widest(m),
              beside         ? vectors_per_step(beside_.map, v, body_ps(beside_.map))
              : ends.empty() ? vectors_per_step(group, v, body_ps(group), 2)
                             : 1);
  }
  if (beside) {
    const auto row = static_cast<int>(std::ranges::find(m.reduced.rbegin(), m.reduced.rend(), row_axis_) - m.reduced.rbegin());
    beside_.sum_loop = acc.name() + ".s1." + RVar(r[row]).name();
    acc.update(0).never_partition(RVar(r[row]));
    acc.compute_root();
  } else {
    place(acc);
  }
  results_of(
      group, [&](size_t i) { return element(acc, at, i, group.size()); }, true);
}

int64_t Lowering::written_out_ps(const std::vector<size_t>& group) const {
  int64_t ps = 0;
  for (size_t g : group) {
    const SpecMember& m = spec_.members[g];
    int64_t term = evaluation_cost_ps(*spec_.arena, m.body) + info(Op::add).cost_ps;
    // Of the conditions those on data. Of places alone they are the edges of a window, and most of it has none.
    for (Id c : conjuncts(*spec_.arena, m.condition))
      if (std::ranges::any_of(reachable(*spec_.arena, c), [&](Id x) { return is_read((*spec_.arena)[x].op); }))
        term += evaluation_cost_ps(*spec_.arena, c);
    ps += spec_.terms(m) * term;
  }
  return ps;
}

// A window that slides along v: what is summed depends on v and s by their sum alone, so that the sums over all other axes
// (the columns of a box blur) are computed once for each v + s, and not by every window that they lie in.
Id Lowering::slides_by(const SpecMember& m, Id v) const {
  Arena& a = *spec_.arena;
  if (m.reduced.size() < 2) return kNone;
  for (Id s : m.reduced) {
    if (spec_.terms(m) / axis(s).extent < 2 || axis(s).extent < 2) continue;
    const Replacements together = {{v, a.sub(a.axis("sum"), s)}};
    bool apart = std::ranges::any_of(std::array{m.body, m.condition}, [&](Id root) {
      Id now = with_collected_indices(a, substitute(a, root, together));
      return a[now].depends_on(s);
    });
    if (!apart) return s;
  }
  return kNone;
}

// Is each of the indices an axis of the map, and another one? Or its quotient, if the map walks it in phases, which have all the
// same of it.
bool Lowering::at_every_point(const SpecMember& map, std::span<const Id> indices) const {
  const Arena& a = *spec_.arena;
  const Quotients by = quotients_of({static_cast<size_t>(&map - spec_.members.data())});
  std::vector<Id> walked;
  for (Id index : indices) walked.push_back(a[index].op == Op::div && by.contains(a[index].arg(0)) ? a[index].arg(0) : index);
  return walked == map.left;
}

// Its values are read by one map, where they are made: then it is part of the map's expression.
bool Lowering::part_of_a_map(const SpecMember& m) const {
  const Arena& a = *spec_.arena;
  if (spec_.tensors[m.tensor].use != SpecTensor::Use::temporary) return false;
  size_t readers = 0;
  for (const SpecMember& other : spec_.members) {
    bool reads = false;
    for (Id id : reachable(a, std::vector<Id>{other.body, other.condition})) {
      if (!is_read(a[id].op) || a[id].symbol != m.tensor) continue;
      reads = true;
      if (other.op != Op::constant || !at_every_point(other, read_indices(a[id]))) return false;
    }
    readers += reads;
  }
  return readers == 1;
}

// The sum of the group's terms over these axes, each written out.
std::vector<Expr> Lowering::written_out(const std::vector<size_t>& group, const std::vector<Id>& over, Emitter::Axes axes, bool long_row,
                                        Id inside_along) const {
  Emitter inside = emit_;
  inside.inside_along = inside_along;
  inside.mostly_inside = long_row;
  if (long_row) inside.padding = nullptr;
  return add_terms(inside, group, over, std::move(axes), identities(group));
}

// What is added up so far, and the group's terms over these axes, each written out.
std::vector<Expr> Lowering::add_terms(const Emitter& emit, const std::vector<size_t>& group, const std::vector<Id>& over,
                                      Emitter::Axes axes, std::vector<Expr> values) const {
  std::vector<int64_t> at(over.size(), 0);
  for (bool more = true; more;) {
    for (size_t i = 0; i < at.size(); ++i) axes[over[i]] = static_cast<int>(at[i]);
    values = emit.steps(members_of(group), std::move(values), axes);
    more = false;
    for (size_t i = at.size(); i-- > 0 && !more;) {
      more = ++at[i] < axis(over[i]).extent;
      if (!more) at[i] = 0;
    }
  }
  return values;
}

// Is something read at i + r, for this axis i or r and another?
bool Lowering::moves_window(const SpecMember& m, Id x) const {
  const Arena& a = *spec_.arena;
  return std::ranges::any_of(reachable(a, m.body), [&](Id id) {
    return is_read(a[id].op) &&
           std::ranges::any_of(read_indices(a[id]), [&](Id index) { return a[index].depends_on(x) && a[index].free_axes().size() > 1; });
  });
}

// Rows of a window's results that read the same rows are computed together: what they share is loaded once (a depthwise 3x3
// convolution, one thread: 0.60 ms with four rows, 0.83 with one; with 9 taps 36 products fit the registers).
bool Lowering::rows_together(Func f, const SpecMember& m, Id v) const {
  constexpr int64_t kMaxTerms = 48;
  const std::vector<Id> rows = rows_of(m, v);
  if (rows.empty() || !constant(v) || !constant(rows[0])) return false;
  const Id y = rows[0];
  if (one_in_row(y)) return false;
  const int width = natural(widest(m));
  int together = 4;
  while (together > 1 && (together * spec_.terms(m) > kMaxTerms || axis(y).extent < together)) together /= 2;
  if (!moves_window(m, y) || together == 1 || axis(v).extent < width) return false;
  Var vo("vo"), vi("vi"), yo("yo"), yi("yi");
  for (Id x : {v, y}) f.bound(vars_.at(x), 0, static_cast<int>(axis(x).extent));  // or blocks would begin before what is needed
  f.split(vars_.at(v), vo, vi, width, TailStrategy::ShiftInwards).vectorize(vi);
  f.split(vars_.at(y), yo, yi, together, TailStrategy::ShiftInwards).reorder(vi, yi, vo, yo).unroll(yi);
  return true;
}

// Of the columns of a sliding window (slides_by), [0, v's extent + slide's extent - 1): those whose terms all lie inside the rows that
// they read. None if that is not so for each read by itself.
Lowering::Columns Lowering::columns_inside(const SpecMember& m, Id v, Id slide) const {
  const Arena& a = *spec_.arena;
  const Columns none{v, slide, 0, 0};
  Columns c{v, slide, 0, axis(v).extent + axis(slide).extent - 1};
  if (!constant(v)) return none;
  for (Id id : reachable(a, std::vector<Id>{m.body, m.condition})) {
    if (!is_read(a[id].op)) continue;
    const auto ids = read_indices(a[id]);
    for (size_t d = 0; d < ids.size(); ++d) {
      const auto free = a[ids[d]].free_axes();
      if (!std::ranges::binary_search(free, v)) continue;
      const auto [low, high] = spec_.interval(ids[d]);
      if (free.size() != 2 || high - low != axis(v).extent + axis(slide).extent - 2) return none;
      c.first = std::max(c.first, -low);
      c.last = std::min(c.last, spec_.tensors[a[id].symbol].shape[d] - low);
    }
  }
  return c;
}

// Columns inside their rows in plain vectors, aligned as the rows are, the last of which may overlap the one before; the others, one by
// one. Chosen lane by lane the ends are gathers: a box blur in L2, of rows of 1024, took 17.8 us instead of 11.9. Returns where column 0
// is kept.
int64_t Lowering::columns_by_parts(Func columns, const std::vector<size_t>& group, const std::vector<Id>& over, Emitter::Axes axes,
                                   const Columns& c) const {
  const SpecMember& m = spec_.members[group[0]];
  const std::vector<Var> vars = func_vars(m);
  const int64_t width = natural(widest(m)), all = axis(c.v).extent + axis(c.slide).extent - 1;
  const int64_t shift = (c.first + width - 1) / width * width - c.first, vectors = (c.last - c.first) / width * width;
  const auto along = std::ranges::find(vars, vars_.at(c.v).name(), &Var::name) - vars.begin();
  std::vector<Expr> at = exprs(vars);
  columns(at) = Halide::undef(identities(group)[0].type());
  auto part = [&](int64_t begin, int64_t end, int by) {
    if (begin == end) return;
    RDom r(0, static_cast<int>(end - begin), by > 1 ? "xh_inside" : "xh_end");
    axes[c.v] = r.x + static_cast<int>(begin);
    at[static_cast<size_t>(along)] = r.x + static_cast<int>(begin + shift);
    define(columns, at, {written_out(group, over, axes, true, by > 1 ? c.v : kNone)[0]});
    Halide::Stage stage = columns.update(columns.num_update_definitions() - 1);
    std::vector<VarOrRVar> walk = {RVar(r.x)};
    for (const Var& x : vars)
      if (x.name() != vars_.at(c.v).name()) walk.push_back(x);
    stage.reorder(walk);
    if (by > 1)
      stage.vectorize(RVar(r.x), by);
    else
      stage.never_partition(RVar(r.x));
  };
  const auto wide = static_cast<int>(width);
  part(c.first, c.first + vectors, wide);
  if (vectors < c.last - c.first) part(c.last - width, c.last, wide);
  part(0, c.first, 1);
  part(c.last, all, 1);
  columns.bound(vars_.at(c.v), 0, static_cast<int>((shift + all + width - 1) / width * width));
  return shift;
}

void Lowering::unrolled(const std::vector<size_t>& group, Id v) {
  const SpecMember& m = spec_.members[group[0]];
  std::vector<Var> left = func_vars(m);
  const int width = natural(widest(m));
  // Long rows have vectors of which all of the window lies inside, and a loop for these; short ones read a padded copy.
  constexpr int64_t kLongRow_vectors = 16;
  bool long_row = !constant(v) || axis(v).extent >= kLongRow_vectors * width;
  const bool may_slide = group.size() == 1 && long_row && combines_in_parts(m.op, accumulated(m));
  const Id slide = may_slide ? slides_by(m, v) : kNone;
  const bool inlined = group.size() == 1 && part_of_a_map(m);
  Func all(name("few", m.tensor)), columns(name("columns", m.tensor));
  std::vector<Expr> values;
  int64_t shift = 0;
  if (slide == kNone) {
    values = written_out(group, m.reduced, left_locals(m), long_row);
  } else {
    std::vector<Id> others = m.reduced;
    std::erase(others, slide);
    Emitter::Axes axes = left_locals(m);
    axes[slide] = 0;
    const Columns inside = columns_inside(m, v, slide);
    if (inside.last - inside.first >= width)
      shift = columns_by_parts(columns, group, others, axes, inside);
    else
      define(columns, exprs(left), {written_out(group, others, axes, long_row)[0]});
    for (int64_t s = 0; s < axis(slide).extent; ++s) {
      std::vector<Expr> at = exprs(left);
      for (Expr& x : at)
        if (const auto* var = x.as<Halide::Internal::Variable>(); var->name == vars_.at(v).name()) x = x + static_cast<int>(s + shift);
      values = {s == 0 ? Expr(columns(at)) : Emitter::combine(m.op, values[0], columns(at))};
    }
  }
  if (group.size() == 1) values[0] = to_storage(m, values[0]);
  define(all, exprs(left), values);
  const ShortRows in_rows = slide == kNone ? in_short_rows(group, v) : ShortRows();
  if (in_rows && !inlined) {
    map_across(all, group, in_rows, TailStrategy::GuardWithIf);
  } else if (!inlined) {
    order_rows(all, m, v);
    if (!rows_together(all, m, v))
      vectorize(all, vars_.at(v), v, widest(m), vectors_per_step(group, v, written_out_ps(group), 2), tail_of(group, v));
    // A plane at a time: it stays in L1.
    auto rows = rows_of(m, v);
    auto around = std::ranges::find_if(rows.rbegin(), rows.rend(), [&](Id x) { return moves_window(m, x); }).base();
    if (around != rows.end() && slide == kNone) pads_in_loop(m, {all, vars_.at(*around)});
  }
  if (slide != kNone) {
    if (!columns.has_update_definition()) {
      order_rows(columns, m, v);
      columns.vectorize(vars_.at(v), width, constant(v) ? TailStrategy::ShiftInwards : TailStrategy::GuardWithIf);
    }
    const std::vector<Id> rows = rows_of(m, v);
    if (inlined || (row_result_ != SIZE_MAX && spec_.tensors[m.tensor].use == SpecTensor::Use::temporary))
      place(columns);
    else if (!rows.empty())
      columns.compute_at(all, vars_.at(rows[0]));
    else
      columns.compute_root();
  }
  if (inlined) {
    emit_.made[m.tensor] = all;
    emit_.left_axes[m.tensor] = m.left;
    return;
  }
  leave_all(group, all);
}

// What sums have added up, as it is stored.
Func Lowering::results_of_sums(const std::vector<size_t>& group, const Func& acc) {
  const SpecMember& m = spec_.members[group[0]];
  const std::vector<Expr> at = exprs(func_vars(m));
  std::vector<Expr> results;
  for (size_t i = 0; i < group.size(); ++i) results.push_back(element(acc, at, i, group.size()));
  if (group.size() == 1) results[0] = to_storage(m, results[0]);
  Func result(name("few", m.tensor));
  define(result, at, results);
  return result;
}

// A function of all members of the group: the result of one, or results by themselves of several.
void Lowering::leave_all(const std::vector<size_t>& group, const Func& all) {
  const SpecMember& m = spec_.members[group[0]];
  if (group.size() == 1) return publish(m, all);
  place(all);
  results_of(
      group, [&](size_t i) { return element(all, exprs(func_vars(m)), i, group.size()); }, true);
}

}  // namespace xhat::runtime
