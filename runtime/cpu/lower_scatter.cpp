// Scatter: sums whose terms say themselves where they are added. Every tile takes what falls into it, in the order of the terms,
// so that values do not depend on the tiles.
#include <algorithm>
#include <functional>

#include "cse/normalize/auto_inliner.h"
#include "runtime/cpu/lowering.h"
#include "runtime/host/tile_services.h"

namespace xhat::runtime {
namespace {

constexpr int64_t kWorthListing = 64;    // terms
constexpr int64_t kStaysNear = 1 << 20;  // bytes of a result between its zeros and its terms: half of L2

// Of a place that no data decide Halide's simplifier knows enough to take the clamp away, and its bounds too little to do without it.
Expr hidden(const Arena& a, Id index, const Expr& place) { return tensors_read(a, index).empty() ? place + hidden_zero() : place; }

// Terms that are all the same do not ask which one of the list it is, and a tile of one place does not either. The loop over the list must
// stay one: the value seems to depend on it.
void mention_listed(const Arena& a, const SpecMember& m, const Emitter::Axes& axes, Expr& value) {
  if (std::ranges::any_of(m.reduced, [&](Id x) { return a[m.body].depends_on(x); })) return;
  value = Halide::select(axes.at(m.reduced.back()) + hidden_zero() >= 0, value, Halide::Internal::make_zero(value.type()));
}

}  // namespace

// The loop over the terms that fall into the tile, or into a row of it where `into` is computed in a loop over these; and what
// every axis is at one of them.
Lowering::Loops Lowering::listed(const SpecMember& m, Func into, Id row, Func rows_of) {
  const std::vector<Id> walked(m.reduced.rbegin(), m.reduced.rend());
  std::vector<Var> vars;
  Emitter::Axes at = left_locals(m);
  Expr terms = 1;
  for (Id x : walked) {
    vars.emplace_back("t_" + spec_.arena->name(x));
    at[x] = vars.back();
    terms = terms * extent(x);
  }
  Expr inside, of_row = 0;
  for (auto& [x, index] : m.scatter) {
    Expr place = hidden(*spec_.arena, index, emit_.local_index(index, x, at)), here = place >= 0 && place < extent(x);
    inside = inside.defined() ? inside && here : here;
    if (x == row) of_row = Halide::cast<int>(place);
  }
  Func places(name("places", m.tensor)), list(name("list", m.tensor));
  places(vars) = Halide::select(inside, of_row, -1);
  for (size_t i = 0; i < vars.size(); ++i) places.bound(vars[i], 0, extent(walked[i]));
  vectorize(places, vars[0], walked[0], DType::f32, 1);
  Var k("k");
  list(k) = places(std::vector<Expr>(vars.size(), 0)) + k;  // until the pass puts a call here
  const Expr rows = row == kNone ? Expr(1) : extent(row);
  list.bound(k, 0, list_room(terms, rows));
  place(places);
  place(list);

  RDom hits(0, terms, "xh_hits");
  scatter_lists_.push_back({places.name(), list.name(), into.name() + ".s1." + hits.x.name(), terms, rows});
  if (row != kNone) scatter_lists_.back().row = rows_of.name() + ".s0." + vars_.at(row).name();
  Loops l{hits, left_locals(m)};
  Expr term = Halide::unsafe_promise_clamped(list(hits + rows + 1), 0, terms - 1);
  for (size_t i = 0; i < walked.size(); ++i) {
    const bool last = i + 1 == walked.size();
    l.axes[walked[i]] = last ? term : term % extent(walked[i]);
    term = term / extent(walked[i]);
  }
  return l;
}

// Is each element of it read for that element alone, if it is read here at all?
bool Lowering::read_at_own_place(const SpecMember& made) const {
  return std::ranges::all_of(spec_.members, [&](const SpecMember& m) {
    return std::ranges::all_of(reads(m),
                               [&](const Access& x) { return x.tensor != made.tensor || (!x.may_miss && x.indices == made.left); });
  });
}

// Are vectors along its rows, and tiles whole rows that one index chooses?
bool Lowering::summed_by_row(const SpecMember& m) const {
  const auto dims = tile_dimensions(spec_, m);
  if (m.scatter.size() != 1 || row_result_ != SIZE_MAX || !read_at_own_place(m)) return false;
  const Id row = m.scatter[0].first, v = m.left[dims.back()];
  return axis(row).kind() != AxisKind::point && row != v && constant(v) && axis(v).extent >= natural(widest(m));
}

// A row at a time: its terms are summed up in registers (20,480 rows of 128 into 10,000, two threads: 0.22 ms with the rows in
// memory, first zeroed, then added to as they come).
void Lowering::scatter_rows(const SpecMember& m) {
  constexpr int64_t kMaxVectors = 8;  // half the registers of AVX2
  const Id row = m.scatter[0].first, v = m.left[tile_dimensions(spec_, m).back()];
  const int width = natural(widest(m));
  const int panel = width * static_cast<int>(std::min(kMaxVectors, axis(v).extent / width));
  const std::vector<Var> left = func_vars(m);
  const std::vector<Expr> at = exprs(left);
  Func acc(name("acc", m.tensor)), result(name("red", m.tensor));
  acc(left) = Emitter::identity(m.op, accumulated(m));
  auto [r, axes] = listed(m, acc, row, result);
  Expr next = emit_.step(m, acc(at), axes);
  mention(r, next);
  mention_listed(*spec_.arena, m, axes, next);
  define(acc, at, {next});
  result(left) = to_storage(m, acc(at));

  if (spec_.tensors[m.tensor].use == SpecTensor::Use::temporary)
    for (size_t d : tile_dimensions(spec_, m)) result.bound(vars_.at(m.left[d]), 0, extent(m.left[d]));
  by_panels(result, acc, m, v, panel, r);
  publish(m, result);
}

// What is dear of each term, in vectors, before the terms are added one by one: a function of these axes. Vectors run along a row of the
// result if there is a long one, else along the axis with most terms; short axes are written out beside them, to share what they compute.
// t.around: axes of the result with loops around the terms, the innermost first; each of their points has a table of its own.
void Lowering::fill(TableOfTerms& t, const SpecMember& m, const Func& into, const std::function<Expr(const Emitter::Axes&)>& value) {
  std::vector<Id>& over = t.over;
  constexpr int64_t kBeside = 16;
  auto rank = [&](Id x) {
    const bool row = std::ranges::count(m.left, x) > 0;
    const bool long_row = row && constant(x) && axis(x).extent >= natural(widest(m));
    return std::pair(long_row, row ? 0 : axis(x).in_tile());
  };
  std::ranges::rotate(over, std::ranges::max_element(over, {}, rank));
  std::vector<Var> vars;
  Emitter::Axes at = left_locals(m);
  for (Id x : over) at[x] = vars.emplace_back("t_" + spec_.arena->name(x));
  for (Id x : t.around) vars.push_back(vars_.at(x));
  Func& f = t.values;
  f(vars) = value(at);
  for (size_t i = 0; i < over.size(); ++i) f.bound(vars[i], 0, extent(over[i]));
  const int width = natural(widest(m));
  if (constant(over[0]) && axis(over[0]).extent < width) {
    vectorize(f, vars[0], over[0], widest(m), 1);
  } else {
    const Var steps("t_steps"), lanes("t_lanes");
    f.split(vars[0], steps, lanes, width, TailStrategy::GuardWithIf);
    std::vector<VarOrRVar> order = {lanes}, rest = {steps};
    int64_t beside = 1;
    for (size_t i = 1; i < vars.size(); ++i) {
      const bool written = i < over.size() && constant(over[i]) && beside * axis(over[i]).extent <= kBeside;
      if (written) beside *= axis(over[i]).extent;
      (written ? order : rest).emplace_back(vars[i]);
    }
    const std::vector<VarOrRVar> unrolled(order.begin() + 1, order.end());
    order.insert(order.end(), rest.begin(), rest.end());
    f.reorder(order).vectorize(lanes);
    for (const VarOrRVar& x : unrolled) f.unroll(x);
  }
  if (t.around.empty())
    place(f);
  else
    f.compute_at(into, vars_.at(t.around[0]));
}

// What a table has for a term.
Expr Lowering::TableOfTerms::at(const Emitter::Axes& axes) const {
  std::vector<Expr> args;
  const std::vector<Var> vars = values.args();
  for (size_t i = 0; i < vars.size(); ++i) args.push_back(i < over.size() ? axes.at(over[i]) : Expr(vars[i]));
  return values(args);
}

// The largest parts of a term that are dear and the same for all of a row. A product stays one, for it may become part of an fma; the root is
// one number in any case.
std::vector<Id> Lowering::dear_beside_row(Id root, const std::vector<Id>& row) const {
  const Arena& a = *spec_.arena;
  std::vector<Id> parts, open = {root};
  std::set<Id> met;
  while (!open.empty()) {
    const Id id = open.back();
    open.pop_back();
    const Node& n = a[id];
    if (is_read(n.op) || !met.insert(id).second || !costs_at_least(a, id, kSharedInTile_ps)) continue;
    const bool in_row = std::ranges::any_of(row, [&](Id x) { return n.depends_on(x); });
    const bool product = n.op == Op::mul || n.op == Op::neg;
    if (is_float(n.type) && !in_row && (!product || id == root))
      parts.push_back(id);
    else
      open.insert(open.end(), n.args().begin(), n.args().end());
  }
  return parts;
}

// Terms that may be anywhere go one by one, each to its place, or those of a tile by a list.
void Lowering::scatter(const SpecMember& m) {
  const Arena& a = *spec_.arena;
  std::vector<Var> left = func_vars(m);
  Func acc(name("acc", m.tensor));
  acc(left) = Emitter::identity(m.op, accumulated(m));
  const bool cut = std::ranges::any_of(m.scatter, [&](const auto& s) { return axis(s.first).kind() != AxisKind::untiled; });
  const bool many = std::ranges::any_of(m.reduced, [&](Id x) { return !constant(x); }) || spec_.terms(m) >= kWorthListing;
  // Of a place that depends on other axes of the result (ids[n,b] in row n) there would be a list per point of these.
  const auto places_need = [&](Id x) { return std::ranges::any_of(m.scatter, [&](const auto& s) { return a[s.second].depends_on(x); }); };
  const bool by_row = std::ranges::any_of(m.left, places_need);
  const bool listable = vectors_ && !by_row && many;
  // Rows that stay near are added to where they lie.
  int64_t bytes = static_cast<int64_t>(byte_size(accumulated(m)));
  for (size_t d : tile_dimensions(spec_, m)) bytes *= axis(m.left[d]).in_tile();
  const bool far = cut || (bytes > kStaysNear && !spec_.across_tiles(m));
  if (listable && far && summed_by_row(m)) return scatter_rows(m);
  const bool lists = listable && cut;
  auto [r, axes] = lists ? listed(m, acc, kNone, acc) : loops_of(m);

  // Axes of the result that are walked for a term, and around all terms.
  std::vector<Id> inner, outer;
  const auto dims = tile_dimensions(spec_, m);
  const auto is_target = [&](Id x) { return std::ranges::count(m.scatter, x, &std::pair<Id, Id>::first) > 0; };
  bool behind = true;  // all axes at computed places
  for (size_t i = dims.size(); i-- > 0;) {
    const Id x = m.left[dims[i]];
    behind = behind && !is_target(x);
    if (!is_target(x)) (behind && !places_need(x) ? inner : outer).push_back(x);
  }

  // A number by itself takes some times as long as in a vector. Where the places are in a list, what falls elsewhere would be computed in vain.
  Emitter emit = emit_;
  const bool tables = vectors_ && !lists && many;
  const std::vector<Id> terms(m.reduced.rbegin(), m.reduced.rend());
  auto table = [&](std::string name, const std::vector<Id>& roots, std::vector<Id> over) {
    auto needs = [&](Id x) { return std::ranges::any_of(roots, [&](Id id) { return a[id].depends_on(x); }); };
    TableOfTerms t{Func(std::move(name)), std::move(over)};
    std::ranges::copy_if(outer, std::back_inserter(t.around), needs);
    return t;
  };
  auto places_at = [&](const Emitter::Axes& at) {
    std::vector<Expr> places;
    for (auto& [x, index] : m.scatter) places.push_back(hidden(a, index, emit_.local_index(index, x, at)));
    return places;
  };
  auto inside = [&](const std::vector<Expr>& places) {
    Expr all;
    for (size_t i = 0; i < places.size(); ++i) {
      const Expr here = places[i] >= 0 && places[i] < extent(m.scatter[i].first);
      all = all.defined() ? all && here : here;
    }
    return all;
  };
  std::vector<Expr> places;
  // A place that floats say takes a number by itself some 20 instructions.
  const bool dear_places = tables && std::ranges::any_of(m.scatter, [&](const auto& s) { return evaluation_cost_ps(a, s.second) > 0; });
  std::vector<Id> indices;
  for (const auto& s : m.scatter) indices.push_back(s.second);
  for (size_t i = 0; dear_places && i < m.scatter.size(); ++i) {
    // It may lie outside of the whole result, too: what a read with else does not find has no place.
    auto place = [&](const Emitter::Axes& at) {
      const std::vector<Expr> here = places_at(at);
      return i == 0 ? Halide::select(inside(here), Halide::cast<int>(here[0]), -1) : Halide::cast<int>(here[i]);
    };
    TableOfTerms t = table(name("places", m.tensor) + "_" + std::to_string(i), indices, terms);
    fill(t, m, acc, place);
    places.push_back(t.at(axes));
  }
  if (dear_places)
    r.where(places[0] >= 0);
  else if (places = places_at(axes); !lists)
    r.where(inside(places));
  SpecMember term = m;
  if (is_float(accumulated(m)) && costs_at_least(a, m.body, kSharedInTile_ps)) {
    std::map<Id, TableOfTerms> parts;
    auto with_parts = [&](const Emitter::Axes& at) {
      Emitter e = emit_;
      for (const auto& [id, t] : parts) e.given[id] = t.at(at);
      return e;
    };
    // Where its condition does not hold, a term changes nothing.
    auto value = [&](const Emitter::Axes& at) {
      const Expr v = with_parts(at).value(m.body, at);
      return is_true(a, m.condition) ? v : Halide::select(emit_.condition(m.condition, at), v, Emitter::identity(m.op, accumulated(m)));
    };
    Id rest = m.body;                         // but for the parts
    bool whole = tables && !(cut && by_row);  // terms of other tiles would be computed in vain
    if (whole) {
      Replacements known;
      for (Id id : dear_beside_row(m.body, inner)) {
        if (id == m.body) continue;
        TableOfTerms t = table(name("part", m.tensor) + "_" + std::to_string(parts.size()), {id}, terms);
        fill(t, m, acc, [&](const Emitter::Axes& at) { return emit_.value(id, at); });
        parts.emplace(id, std::move(t));
        known[id] = spec_.arena->constant(a[id].type, 1);
      }
      rest = substitute(*spec_.arena, m.body, known);
      std::vector<Id> over = terms;
      for (Id x : inner) {
        if (!a[m.body].depends_on(x) && !a[m.condition].depends_on(x)) continue;
        over.push_back(x);
        whole = whole && constant(x);
      }
      whole = whole && costs_at_least(a, rest, kSharedInTile_ps);
      if (whole) {
        TableOfTerms t = table(name("terms", m.tensor), {m.body, m.condition}, over);
        fill(t, m, acc, value);
        emit.given[m.body] = t.at(axes);
        term.condition = spec_.arena->boolean(true);
      }
    }
    if (!whole) emit.given[m.body] = with_parts(axes).value(m.body, axes);
  }

  std::vector<Expr> at;
  for (size_t i = dims.size(); i-- > 0;) {
    const Id x = m.left[dims[i]];
    at.emplace_back(vars_.at(x));
    if (!is_target(x)) continue;
    const auto target = std::ranges::find(m.scatter, x, &std::pair<Id, Id>::first);
    const Expr last = extent(x) - 1, place = places[static_cast<size_t>(target - m.scatter.begin())];
    at.back() = Halide::unsafe_promise_clamped(lists ? Halide::clamp(place, 0, last) : place, 0, last);
  }
  // Into the result, not into a copy of it. But Halide takes loads of what it writes for aligned (emit.cpp), if it knows all of
  // the index: if there is no row.
  const bool itself = !behind && storage_type(accumulated(m)) == storage_type(spec_.tensors[m.tensor].type);
  Expr next = emit.step(term, acc(at), axes);
  mention(r, next);
  if (lists) mention_listed(a, m, axes, next);
  define(acc, at, {next});
  std::vector<VarOrRVar> order;
  for (Id x : inner) order.emplace_back(vars_.at(x));
  for (int i = 0; i < r.dimensions(); ++i) order.emplace_back(RVar(r[i]));
  for (Id x : outer) order.emplace_back(vars_.at(x));
  if (order.size() > 1)
    acc.update(0).reorder(order);
  else
    acc.update(0).unscheduled();  // term by term
  if (!inner.empty()) add_rows(acc, m, inner);
  along_memory(acc, m);
  if (itself) return publish(m, acc);
  place(acc);
  results_of(
      {static_cast<size_t>(&m - spec_.members.data())}, [&](size_t) { return Expr(acc(left)); }, true);
}

// What a term adds to a row, the innermost axis of which comes first: in vectors; a short row in vectors that are whole, and written out. (What
// a masked vector has stored, the next term that adds to the row would wait for.)
void Lowering::add_rows(Func acc, const SpecMember& m, const std::vector<Id>& row) const {
  constexpr int64_t kWrittenOut = 16;
  const Id v = row[0];
  const int width = natural(widest(m));
  if (!vectors_ || !constant(v) || axis(v).extent >= width) return vectorize(acc.update(0), vars_.at(v), v, widest(m), 4);
  int whole = 1;
  while (axis(v).extent % (2 * whole) == 0) whole *= 2;
  int64_t written = 1;
  for (Id x : row) {
    if (!constant(x) || written * axis(x).extent > kWrittenOut) break;
    written *= axis(x).extent;
    acc.bound(vars_.at(x), 0, static_cast<int>(axis(x).extent));
    if (x != v || whole == 1) {
      acc.update(0).unroll(vars_.at(x));
    } else if (whole == axis(x).extent) {
      acc.update(0).vectorize(vars_.at(x));
    } else {
      const Var vectors("row_v"), lanes("row_l");
      acc.update(0).split(vars_.at(x), vectors, lanes, whole).vectorize(lanes).unroll(vectors);
    }
  }
}

}  // namespace xhat::runtime
