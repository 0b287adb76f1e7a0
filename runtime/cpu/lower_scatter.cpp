// Scatter: sums whose terms say themselves where they are added. Every tile takes what falls into it, in the order of the terms,
// so that values do not depend on the tiles.
#include <algorithm>

#include "runtime/cpu/lowering.h"
#include "runtime/host/tile_services.h"

namespace xhat::runtime {
namespace {

constexpr int64_t kWorthListing = 64;  // terms

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
    return std::ranges::all_of(reads(m), [&](const Access& x) { return x.tensor != made.tensor || (!x.may_miss && x.indices == made.left); });
  });
}

// Are vectors along its rows, and tiles whole rows that one index chooses?
bool Lowering::summed_by_row(const SpecMember& m) const {
  const auto dims = tile_dimensions(spec_, m);
  if (m.scatter.size() != 1 || row_result_ != SIZE_MAX || !read_at_own_place(m)) return false;
  const Id row = m.scatter[0].first, v = m.left[dims.back()];
  return axis(row).kind() == AxisKind::tiled && row != v && constant(v) && axis(v).extent >= natural(widest(m));
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

// The places of all terms first, in vectors, then the terms one by one; what they are, too, in vectors, where each is added once. (Vectors
// along another axis of the result, such as channels, would touch a line of memory for each lane, often a power of two apart: bilinear
// sampling of 16 channels, 64x64, backward: 4.8 ms so.)
void Lowering::scatter_by_places(const SpecMember& m) {
  const std::vector<Id> walked(m.reduced.rbegin(), m.reduced.rend());
  std::vector<Var> vars;
  Emitter::Axes at_term = left_locals(m);
  for (Id x : walked) {
    vars.emplace_back("t_" + spec_.arena->name(x));
    at_term[x] = vars.back();
  }
  Expr inside, offset = 0;
  for (auto& [x, index] : m.scatter) {
    const Expr place = hidden(*spec_.arena, index, emit_.local_index(index, x, at_term)), here = place >= 0 && place < extent(x);
    inside = inside.defined() ? inside && here : here;
    offset = offset * extent(x) + Halide::clamp(place, 0, extent(x) - 1);
  }
  auto [r, axes] = loops_of(m);
  std::vector<Expr> term;
  for (int i = 0; i < r.dimensions(); ++i) term.emplace_back(r[i]);
  auto table = [&](const char* kind, const Expr& value) {
    Func f(name(kind, m.tensor));
    f(vars) = value;
    for (size_t i = 0; i < vars.size(); ++i) f.bound(vars[i], 0, extent(walked[i]));
    vectorize(f, vars[0], walked[0], DType::f32, 1);
    this->place(f);
    return f(term);
  };
  Expr place = table("places", Halide::select(inside, Halide::cast<int>(offset), -1));
  r.where(place >= 0);
  const auto dims = tile_dimensions(spec_, m);
  Emitter emit = emit_;
  const bool once = dims.size() == m.scatter.size();
  if (once && is_float(accumulated(m))) emit.given[m.body] = table("terms", emit_.value(m.body, at_term));

  Func acc(name("acc", m.tensor));
  const std::vector<Var> left = func_vars(m);
  std::vector<Expr> at = exprs(left);
  for (size_t i = m.scatter.size(); i-- > 0;) {
    const Id x = m.scatter[i].first;
    const auto dim = std::ranges::find(dims, x, [&](size_t d) { return m.left[d]; });
    const Expr here = i == 0 ? place : place % extent(x);
    if (dim != dims.end()) at[static_cast<size_t>(dims.end() - dim) - 1] = Halide::unsafe_promise_clamped(here, 0, extent(x) - 1);
    place = place / extent(x);
  }
  acc(left) = Emitter::identity(m.op, accumulated(m));
  Expr next = emit.step(m, acc(at), axes);
  mention(r, next);
  define(acc, at, {next});
  std::vector<VarOrRVar> order;
  for (int i = 0; i < r.dimensions(); ++i) order.emplace_back(RVar(r[i]));
  for (size_t i = 0; i < left.size(); ++i)
    if (const auto* var = at[i].as<Halide::Internal::Variable>(); var && var->name == left[i].name()) order.emplace_back(left[i]);
  if (order.size() > 1)
    acc.update(0).reorder(order);
  else
    acc.update(0).unscheduled();
  along_memory(acc, m);
  this->place(acc);
  results_of(
      {static_cast<size_t>(&m - spec_.members.data())}, [&](size_t) { return Expr(acc(left)); }, true);
}

void Lowering::scatter(const SpecMember& m) {
  std::vector<Var> left = func_vars(m);
  Func acc(name("acc", m.tensor));
  acc(left) = Emitter::identity(m.op, accumulated(m));
  const bool cut = std::ranges::any_of(m.scatter, [&](const auto& s) { return axis(s.first).kind() != AxisKind::untiled; });
  const bool unknown = std::ranges::any_of(m.reduced, [&](Id x) { return !constant(x); });
  // Of a place that depends on other axes of the result (ids[n,b] in row n) there would be a list per point of these.
  const auto places_need = [&](Id x) {
    return std::ranges::any_of(m.scatter,
                               [&](const auto& s) { return (*spec_.arena)[s.second].depends_on(x); });
  };
  const bool by_row = std::ranges::any_of(m.left, places_need);
  const bool lists = vectors_ && cut && !by_row && (unknown || spec_.terms(m) >= kWorthListing);
  if (lists && summed_by_row(m)) return scatter_rows(m);
  const auto all = tile_dimensions(spec_, m);
  auto added_at = [&](Id x) { return std::ranges::find(m.scatter, x, &std::pair<Id, Id>::first) != m.scatter.end(); };
  // What lies side by side are places that data decide: a term goes to each of the other axes by itself.
  const bool apart = !all.empty() && added_at(m.left[all.back()]);
  const bool same_for_all = std::ranges::none_of(m.left, [&](Id x) { return axis(x).kind() != AxisKind::point && places_need(x); });
  if (vectors_ && apart && !cut && same_for_all && (unknown || spec_.terms(m) >= kWorthListing)) return scatter_by_places(m);
  auto [r, axes] = lists ? listed(m, acc, kNone, acc) : loops_of(m);
  std::vector<Expr> at;
  std::vector<Var> pure;
  auto dims = tile_dimensions(spec_, m);
  for (size_t i = dims.size(); i-- > 0;) {
    pure.push_back(vars_.at(m.left[dims[i]]));
    at.push_back(pure.back());
  }
  for (auto& [x, index] : m.scatter) {
    // It may lie outside of the whole result, too: what a read with else does not find has no place.
    Expr place_in_tile = hidden(*spec_.arena, index, emit_.local_index(index, x, axes));
    if (!lists) r.where(place_in_tile >= 0 && place_in_tile < extent(x));
    auto dim = std::ranges::find(dims, x, [&](size_t i) { return m.left[i]; });
    if (dim == dims.end()) continue;
    size_t position = static_cast<size_t>(dims.end() - dim) - 1;
    Expr last = extent(x) - 1;
    at[position] = Halide::unsafe_promise_clamped(Halide::clamp(place_in_tile, 0, last), 0, last);
    std::erase_if(pure, [&](const Var& v) { return v.name() == vars_.at(x).name(); });
  }
  // Into the result, not into a copy of it. But Halide takes loads of what it writes for aligned (emit.cpp), if it knows all of
  // the index: if there is no row.
  const bool rows = pure.size() < dims.size();
  const bool itself = rows && storage_type(accumulated(m)) == storage_type(spec_.tensors[m.tensor].type);
  Expr next = emit_.step(m, acc(at), axes);
  mention(r, next);
  if (lists) mention_listed(*spec_.arena, m, axes, next);
  define(acc, at, {next});
  if (!pure.empty()) {
    // Vectors run along the fastest axis, if a term's place is the same for all of them; else term by term.
    auto axis_of = [&](const Var& v) { return *std::ranges::find(m.left, v.name(), [&](Id x) { return vars_.at(x).name(); }); };
    const Id v = axis_of(pure[0]);
    std::vector<VarOrRVar> order;
    const size_t first = places_need(v) ? 0 : 1;
    if (first == 1) order.emplace_back(pure[0]);
    for (int i = 0; i < r.dimensions(); ++i) order.push_back(RVar(r[i]));
    for (size_t i = first; i < pure.size(); ++i) order.push_back(pure[i]);
    acc.update(0).reorder(order);
    if (first == 1) vectorize(acc.update(0), pure[0], v, widest(m), 4);
  } else {
    acc.update(0).unscheduled();  // term by term
  }
  along_memory(acc, m);
  if (itself) return publish(m, acc);
  place(acc);
  results_of(
      {static_cast<size_t>(&m - spec_.members.data())}, [&](size_t) { return Expr(acc(left)); }, true);
}

}  // namespace xhat::runtime
