// Few results per row, which share much of what they compute (residuals of an observation with their Jacobian): vectors run along rows, and a row is
// one piece of code. Its values have names, so that each is computed once, whichever results use it; as a statement of Halide's for each result,
// all of them computed again what they have in common, and compiled for seconds (bundle adjustment's residual with its Jacobian, 26 results of 14
// numbers: 163 ns along a row's results, 98 along rows and 5 s to compile).
//   read[k, row] = x[row,k]          of a block of rows, one by one
//   let t0 = read[0, rows] ...       of a vector of rows
//   made[k, rows] = t7
//   y[row,k] = made[k, row]          one by one
// What lies in memory row by row is turned on the way in and out: the last rows, which fill no vector, need no code of their own.
#include <algorithm>
#include <functional>

#include "cse/normalize/auto_inliner.h"
#include "expr/rules/simplify.h"
#include "fusion/plan/vector_price.h"
#include "runtime/cpu/ir/statements.h"
#include "runtime/cpu/lowering.h"

namespace xhat::runtime {

namespace {

constexpr int64_t kMostInRow = 32;       // places of an axis that are written out
constexpr int64_t kMostPlaces = 512;     // of all members in a row
constexpr int64_t kMostOperations = 8000;  // in a row: a second or so to compile
constexpr int64_t kMostInFunctions = 2000;  // likewise: what the functions of a row take (in_functions), times the lanes of a vector
constexpr int kBlockBytes = 16384;       // of what a block of rows reads and makes: half of L1
constexpr int kMostVectors = 8;          // of rows in a block
constexpr double kClearly = 1.25;        // cheaper: the prices of cheap operations are rough
constexpr double kScalar = 5;            // how much longer an operation takes by itself than in a vector
constexpr int64_t kTurned_ps = 300;      // a number that is loaded, stored, and loaded again in a vector

// What exp, sin and the like take, in additions. Each is a polynomial of fmas, which Halide emits lane by lane and LLVM joins again (kLlvmOptions,
// runtime/store/fingerprint.h): that takes as long as the square of how many stand in one piece of code. 119 times exp in a row of 17 with vectors
// of 16 took 8 s, and the gradient two minutes.
int64_t in_functions(const Arena& a, std::span<const Id> values) {
  int64_t ps = 0;
  for (Id id : values)
    if (const Node& n = a[id]; is_float(n.type) && cost_ps(a, n) > 2 * info(Op::div).cost_ps) ps += cost_ps(a, n);
  return ps / info(Op::add).cost_ps;
}

// Does it compare floats? Of these Halide's simplifier believes that none is NaN or infinite.
bool compares_floats(const Expr& condition) {
  struct Finder : hi::IRGraphVisitor {
    bool found = false;
    void include(const Expr& e) override {
      found |= e.type().is_float();
      if (!found) hi::IRGraphVisitor::include(e);
    }
  } finder;
  finder.include(condition);
  return finder.found;
}

// Choices by the place in a row are made here.
struct Decided : hi::IRGraphMutator {
  using hi::IRGraphMutator::visit;
  Expr decided(const Expr& condition) {
    const Expr c = mutate(condition);
    return compares_floats(c) ? c : hi::simplify(c);
  }
  Expr visit(const hi::And* op) override {
    const Expr a = decided(op->a), b = decided(op->b);
    if (hi::is_const_zero(a) || hi::is_const_one(b)) return a;
    return hi::is_const_zero(b) || hi::is_const_one(a) ? b : a && b;
  }
  Expr visit(const hi::Select* op) override {
    const Expr c = decided(op->condition);
    if (hi::is_const_one(c)) return mutate(op->true_value);
    if (hi::is_const_zero(c)) return mutate(op->false_value);
    return hi::Select::make(c, mutate(op->true_value), mutate(op->false_value));
  }
  Expr visit(const hi::Call* op) override { return is_hint(op) ? mutate(op->args[0]) : hi::IRGraphMutator::visit(op); }
};

// Reads of inputs: those that differ from row to row out of the block's, the others out of memory; so are those that say where another one reads,
// which is found row by row.
struct Reads : hi::IRGraphMutator {
  using hi::IRGraphMutator::visit;
  struct Kept {
    std::string of;  // its block
    Expr from;       // by row
  };
  std::function<Expr(const hi::Call*, const std::vector<Expr>&)> load;
  std::function<Expr(Halide::Type, const std::string&)> of_block;
  std::string row;
  std::vector<Kept> kept;
  std::map<Expr, Expr, hi::IRDeepCompare> known;

  struct OutOfMemory : hi::IRGraphMutator {
    using hi::IRGraphMutator::visit;
    const Reads& reads;
    explicit OutOfMemory(const Reads& r) : reads(r) {}
    Expr visit(const hi::Call* op) override {
      const Expr call = hi::IRGraphMutator::visit(op);
      return op->call_type == hi::Call::Image ? reads.load(op, call.as<hi::Call>()->args) : call;
    }
  };

  Expr visit(const hi::Call* op) override {
    if (op->call_type != hi::Call::Image) return hi::IRGraphMutator::visit(op);
    const Expr from = OutOfMemory(*this).mutate(Expr(op));
    if (!hi::expr_uses_var(from, row)) return from;
    Expr& place = known[from];
    if (!place.defined()) {
      kept.push_back({"xh_read" + std::to_string(kept.size()), from});
      place = of_block(op->type, kept.back().of);
    }
    return place;
  }
};

}  // namespace

std::optional<Lowering::Rows> Lowering::rows_of_few() const {
  const Arena& a = *spec_.arena;
  // Halide writes arithmetic of halves by the arithmetic of floats before it hands on its code.
  const bool halves = std::ranges::any_of(spec_.tensors, [](const SpecTensor& t) { return t.type == DType::f16 || t.type == DType::bf16; });
  if (!vectors_ || halves || !spec_.over.empty() || spec_.members.empty()) return {};
  auto written = [&](Id x) { return constant(x) && axis(x).extent <= kMostInRow; };
  Rows rows;
  int64_t places = 0;
  for (const SpecMember& m : spec_.members) {
    const SpecTensor& t = spec_.tensors[m.tensor];
    const bool plain = m.scatter.empty() && m.op != Op::argmax && m.op != Op::argmin && !recurrence(m) && spec_.carried_over(m) == kNone;
    // Terms are added up in order, as they are in a tile of one row.
    const Id v = m.reduced.empty() ? kNone : vector_axis({static_cast<size_t>(&m - spec_.members.data())});
    const bool in_lanes = std::ranges::count(m.reduced, v) > 0 && (!constant(v) || axis(v).extent >= shortest_row(m));
    if (in_lanes || rare_terms(m) || contraction(m)) return {};
    const bool mask = t.type == DType::u8 || t.type == DType::boolean;
    const bool leaves = t.use == SpecTensor::Use::result && (t.type == DType::f32 || t.type == DType::f64 || mask);
    if (!plain || !(leaves || t.use == SpecTensor::Use::temporary) || !std::ranges::all_of(m.reduced, written)) return {};
  }
  // Along the innermost axis that all have and that is long.
  const std::vector<Id>& first = spec_.members[0].left;
  auto everywhere = [&](Id x) {
    return std::ranges::all_of(spec_.members, [&](const SpecMember& m) { return std::ranges::count(m.left, x) == 1; });
  };
  for (Id x : first)
    if (everywhere(x) && axis(x).kind() != AxisKind::point && !written(x)) rows.along = x;
  if (rows.along == kNone) return {};
  DType wide = DType::f32;
  for (const SpecMember& m : spec_.members)
    if (const DType t = widest(m); byte_size(t) > byte_size(wide)) wide = t;
  rows.lanes = natural(wide);
  for (Id x : first)
    if (x != rows.along && axis(x).kind() != AxisKind::point && !written(x)) rows.outer.push_back(x);
  bool across = false;
  double now = 0;
  for (const SpecMember& m : spec_.members) {
    int64_t own = 1, terms = spec_.terms(m);
    for (Id x : m.left) {
      if (x == rows.along || axis(x).kind() == AxisKind::point || std::ranges::count(rows.outer, x)) continue;
      if (!written(x)) return {};
      own *= axis(x).extent;
    }
    for (Id x : rows.outer)
      if (std::ranges::count(m.left, x) == 0) return {};
    places += own * terms;
    if (places > kMostPlaces) return {};
    // As it is lowered else: vectors along the last axis, or across short rows.
    const std::vector<size_t> alone = {static_cast<size_t>(&m - spec_.members.data())};
    Id v = vector_axis(alone);
    across |= v != rows.along;
    if (const ShortRows short_rows = in_short_rows(alone, v)) v = short_rows.across;
    const int64_t along = v == kNone || v == rows.along || !constant(v) ? rows.lanes : axis(v).extent;
    const double waste = static_cast<double>((along + rows.lanes - 1) / rows.lanes * rows.lanes) / static_cast<double>(along);
    for (Id id : reachable(a, m.body)) {
      const Node& n = a[id];
      if (!is_float(n.type)) continue;
      double points = 1;
      for (Id x : n.free_axes())
        if (x != rows.along && axis(x).kind() != AxisKind::point && !std::ranges::count(rows.outer, x)) points *= static_cast<double>(axis(x).extent);
      const bool in_lanes = v == rows.along || n.depends_on(v);
      now += static_cast<double>(cost_ps(a, n)) * points * (in_lanes ? waste : rows.lanes);
    }
  }
  if (!across) return {};
  const std::optional<PriceOfRow> price = price_of(rows);
  // Of a vector of rows. How many rows a tile has is not known here; it is many.
  const bool all = axis(rows.along).kind() == AxisKind::tiled;
  const double filled = all ? 1 : lanes_filled(axis(rows.along).extent, rows.lanes) / static_cast<double>(rows.lanes);
  const bool cheaper = price && kClearly * price->together < filled * std::min(now, kScalar * price->apart);
  return cheaper ? std::optional(rows) : std::nullopt;
}

// All places of these axes.
void Lowering::at_places(const std::vector<Id>& axes, const std::function<void(const std::vector<int64_t>&)>& each) const {
  std::vector<int64_t> at(axes.size(), 0);
  for (bool more = true; more;) {
    each(at);
    more = false;
    for (size_t i = at.size(); i-- > 0 && !more;) {
      more = ++at[i] < axis(axes[i]).extent;
      if (!more) at[i] = 0;
    }
  }
}

std::vector<Id> Lowering::in_row(const SpecMember& m, const Rows& rows) const {
  std::vector<Id> axes;
  for (Id x : m.left)
    if (x != rows.along && axis(x).kind() != AxisKind::point && !std::ranges::count(rows.outer, x)) axes.push_back(x);
  return axes;
}

// Of all that a row computes, each once; none: it would be too much code, or something is read in another row.
std::optional<Lowering::PriceOfRow> Lowering::price_of(const Rows& rows) const {
  Arena& a = *spec_.arena;
  std::vector<Id> roots;
  PriceOfRow price;
  double& ps = price.together;
  auto of = [&](Id id) {
    const Node& n = a[id];
    return is_float(n.type) && !is_read(n.op) ? static_cast<double>(cost_ps(a, n)) : 0;
  };
  for (const SpecMember& m : spec_.members) {
    std::vector<Id> axes = in_row(m, rows);
    if (spec_.tensors[m.tensor].use == SpecTensor::Use::result) {
      double results = 1;
      for (Id x : axes) results *= static_cast<double>(axis(x).extent);
      ps += results * kTurned_ps;
    }
    axes.insert(axes.end(), m.reduced.begin(), m.reduced.end());
    at_places(axes, [&](const std::vector<int64_t>& at) {
      Replacements to;
      for (size_t k = 0; k < axes.size(); ++k) to[axes[k]] = a.integer(at[k]);
      if (!is_true(a, m.condition)) roots.push_back(simplify(a, substitute(a, m.condition, to)));
      roots.push_back(simplify(a, substitute(a, m.body, to)));
      if (m.op != Op::constant) ps += info(Op::add).cost_ps, price.apart += info(Op::add).cost_ps;
      for (Id id : reachable(a, std::vector<Id>{roots.back()})) price.apart += of(id);
    });
  }
  const std::vector<Id> all = reachable(a, roots);
  if (static_cast<int64_t>(all.size()) > kMostOperations || rows.lanes * in_functions(a, all) > kMostInFunctions) return {};
  for (Id id : all) {
    const Node& n = a[id];
    if (is_read(n.op)) {
      if (emit_.inputs[n.symbol].defined()) {
        if (n.depends_on(rows.along)) ps += kTurned_ps;
        continue;
      }
      if (n.op != Op::read) return {};
      const auto maker = std::ranges::find(spec_.members, n.symbol, &SpecMember::tensor);
      for (size_t d = 0; d < maker->left.size(); ++d) {
        const Id x = maker->left[d], index = read_indices(n)[d];
        const bool same_row = x == rows.along || axis(x).kind() == AxisKind::point || std::ranges::count(rows.outer, x);
        if (same_row ? index != x : a[index].op != Op::constant) return {};
      }
    } else {
      ps += of(id);
    }
  }
  return price;
}

namespace {

// The values of a row, the first to the last, by names; each result is stored as soon as it is there.
Stmt one_by_one(const std::vector<Expr>& values, const std::function<Stmt(size_t, const Expr&)>& store) {
  Expr all = hi::Call::make(Halide::Int(32), hi::Call::bundle, values, hi::Call::PureIntrinsic);
  all = hi::common_subexpression_elimination(all, true);
  std::vector<std::pair<std::string, Expr>> lets;
  for (const hi::Let* let = all.as<hi::Let>(); let; let = all.as<hi::Let>()) {
    lets.emplace_back(let->name, hi::strictify_float(let->value));
    all = Expr(let->body);
  }
  std::map<std::string, size_t> place;
  for (size_t i = 0; i < lets.size(); ++i) place[lets[i].first] = i + 1;
  struct Last : hi::IRGraphVisitor {
    using hi::IRGraphVisitor::visit;
    const std::map<std::string, size_t>& place;
    size_t last = 0;
    explicit Last(const std::map<std::string, size_t>& p) : place(p) {}
    void visit(const hi::Variable* v) override {
      if (auto at = place.find(v->name); at != place.end()) last = std::max(last, at->second);
    }
  };
  const auto* bundle = all.as<hi::Call>();
  std::vector<std::vector<Stmt>> after(lets.size() + 1);
  for (size_t k = 0; k < values.size(); ++k) {
    Last last(place);
    bundle->args[k].accept(&last);
    after[last.last].push_back(store(k, hi::strictify_float(bundle->args[k])));
  }
  Stmt made;
  auto before = [&](const std::vector<Stmt>& list) {
    for (size_t i = list.size(); i-- > 0;) made = made.defined() ? hi::Block::make(list[i], made) : list[i];
  };
  for (size_t i = lets.size(); i-- > 0;) {
    before(after[i + 1]);
    made = hi::LetStmt::make(lets[i].first, lets[i].second, made);
  }
  before(after[0]);
  return made;
}

}  // namespace

void Lowering::by_rows(const Rows& rows) {
  const Arena& a = *spec_.arena;
  emit_.loops_by_halide = false;
  const std::string row = "xh_row";
  Emitter::Axes around;
  for (Id x : rows.outer) around[x] = int_variable("xh_" + spec_.arena->name(x));

  struct Result {
    const SpecMember* m;
    std::vector<int64_t> at;
    std::string block;
  };
  std::vector<Result> results;
  std::vector<Expr> values;
  std::map<std::pair<uint32_t, std::vector<int64_t>>, Expr> made;
  for (const SpecMember& m : spec_.members) {
    Emitter::Axes axes = around;
    for (Id x : m.left)
      if (axis(x).kind() == AxisKind::point) axes[x] = 0;
    axes[rows.along] = int_variable(row);
    const std::vector<Id> own = in_row(m, rows);
    // What it reads that this row has made.
    std::vector<Id> of_row;
    for (Id root : {m.body, m.condition})
      for (Id id : reachable(a, root))
        if (is_read(a[id].op) && !emit_.inputs[a[id].symbol].defined()) of_row.push_back(id);
    auto give = [&] {
      for (Id id : of_row) {
        const Node& n = a[id];
        const auto maker = std::ranges::find(spec_.members, n.symbol, &SpecMember::tensor);
        // Where no condition of ours lets it through, a place may be none of its maker's; then any value will do.
        std::vector<int64_t> at;
        bool is_place = true;
        const std::vector<Id> inside = in_row(*maker, rows);
        for (size_t d = 0; d < maker->left.size(); ++d) {
          if (!std::ranges::count(inside, maker->left[d])) continue;
          const auto index = hi::as_const_int(hi::simplify(emit_.local_index(read_indices(n)[d], kNone, axes)));
          is_place = is_place && index;
          at.push_back(index.value_or(-1));
        }
        const auto found = is_place ? made.find({n.symbol, at}) : made.end();
        const Expr value = found != made.end() ? found->second : hi::make_zero(storage_type(n.type));
        emit_.given[id] = n.type == DType::boolean ? ops::boolean(value) : value;
      }
    };
    at_places(own, [&](const std::vector<int64_t>& at) {
      for (size_t k = 0; k < own.size(); ++k) axes[own[k]] = static_cast<int>(at[k]);
      Expr value;
      if (m.op == Op::constant) {
        give();
        value = emit_.value(m.body, axes);
      } else {
        value = Emitter::identity(m.op, accumulated(m));
        at_places(m.reduced, [&](const std::vector<int64_t>& term) {
          for (size_t k = 0; k < term.size(); ++k) axes[m.reduced[k]] = static_cast<int>(term[k]);
          give();
          value = emit_.step(m, value, axes);
        });
      }
      emit_.given.clear();
      value = to_storage(m, value);
      made[{m.tensor, at}] = value;
      if (spec_.tensors[m.tensor].use == SpecTensor::Use::temporary) return;
      results.push_back({&m, at, "xh_made" + std::to_string(results.size())});
      values.push_back(value);
    });
  }

  // A pipeline with the same arguments, whose code is replaced.
  for (const SpecMember& m : spec_.members) {
    if (spec_.tensors[m.tensor].use != SpecTensor::Use::result) continue;
    Func f(name("row", m.tensor));
    f(func_vars(m)) = hi::make_zero(storage_type(spec_.tensors[m.tensor].type));
    results_[m.tensor] = f;
  }
  finish();

  std::vector<std::pair<std::string, Expr>> lets;  // of buffers
  std::map<std::string, Halide::Parameter> buffers;
  auto field = [&](const std::string& buffer, const char* what, int d) {
    return hi::Call::make(Halide::Int(32), what, {variable(Halide::type_of<halide_buffer_t*>(), buffer + ".buffer"), d}, hi::Call::Extern);
  };
  auto declared = [&](const std::string& buffer, Halide::Type type, int dimensions) {
    buffers.emplace(buffer, Halide::Parameter(type, true, dimensions, buffer));
    lets.emplace_back(buffer, hi::Call::make(Halide::Handle(), hi::Call::buffer_get_host,
                                             {variable(Halide::type_of<halide_buffer_t*>(), buffer + ".buffer")}, hi::Call::Extern));
    for (int d = 0; d < dimensions; ++d) {
      lets.emplace_back(buffer + ".stride." + std::to_string(d), field(buffer, hi::Call::buffer_get_stride, d));
      lets.emplace_back(buffer + ".extent." + std::to_string(d), field(buffer, hi::Call::buffer_get_extent, d));
    }
  };
  auto element = [](const std::string& buffer, const std::vector<Expr>& at, bool unit) {
    Expr index = 0;
    for (size_t d = 0; d < at.size(); ++d)
      index = index + at[d] * (d == 0 && unit ? Expr(1) : int_variable(buffer + ".stride." + std::to_string(d)));
    return hi::simplify(index);
  };
  std::map<std::string, uint32_t> inputs;
  for (uint32_t t = 0; t < spec_.tensors.size(); ++t) {
    if (!emit_.inputs[t].defined()) continue;
    inputs[emit_.inputs[t].name()] = t;
    declared(emit_.inputs[t].name(), storage_type(spec_.tensors[t].type), emit_.inputs[t].dimensions());
  }
  for (const auto& [m, buffer] : result_buffers_)
    declared(buffer, storage_type(spec_.tensors[m->tensor].type), static_cast<int>(tile_dimensions(spec_, *m).size()));

  Reads reads;
  reads.row = row;
  reads.load = [&](const hi::Call* op, const std::vector<Expr>& at) {
    const SpecTensor& t = spec_.tensors[inputs.at(op->name)];
    return loaded(op->type, op->name, element(op->name, at, t.dense || t.rows), buffers.at(op->name));
  };
  const std::string vector = "xh_vector", lane = "xh_lane", block = "xh_block", in = "xh_in", count = "xh_rows", first = "xh_first";
  reads.of_block = [&](Halide::Type type, const std::string& of) { return loaded(type, of, int_variable(vector) * rows.lanes + int_variable(lane)); };
  Decided decided;
  for (Expr& value : values) value = reads.mutate(decided.mutate(value));

  int bytes = 0;
  for (const Reads::Kept& k : reads.kept) bytes += k.from.type().bytes();
  for (const Result& r : results) bytes += storage_type(spec_.tensors[r.m->tensor].type).bytes();
  const int vectors = std::clamp(kBlockBytes / (bytes * rows.lanes), 1, kMostVectors), room = vectors * rows.lanes;

  // Of places after the last row, what the last has.
  std::vector<Stmt> turned_in, turned_out;
  const Expr last = int_variable(first) + int_variable(count) - 1;
  for (const Reads::Kept& k : reads.kept) turned_in.push_back(stored_at(k.of, k.from, int_variable(in)));
  const Expr places = (int_variable(count) + (rows.lanes - 1)) / rows.lanes;
  Stmt all;
  if (!turned_in.empty())
    all = serial(in, 0, places * rows.lanes, hi::LetStmt::make(row, Halide::min(int_variable(first) + int_variable(in), last), hi::Block::make(turned_in)));
  Stmt computed = one_by_one(values, [&](size_t k, const Expr& value) {
    return stored_at(results[k].block, value, int_variable(vector) * rows.lanes + int_variable(lane));
  });
  computed = hi::LetStmt::make(row, Halide::min(int_variable(first) + int_variable(vector) * rows.lanes + int_variable(lane), last), computed);
  computed = serial(vector, 0, places, vectorized(lane, rows.lanes, computed));
  all = all.defined() ? hi::Block::make(all, computed) : computed;
  for (const Result& r : results) {
    const auto buffer = std::ranges::find(result_buffers_, r.m, &std::pair<const SpecMember*, std::string>::first)->second;
    const auto dims = tile_dimensions(spec_, *r.m);
    const std::vector<Id> own = in_row(*r.m, rows);
    std::vector<Expr> at;
    for (size_t i = dims.size(); i-- > 0;) {
      const Id x = r.m->left[dims[i]];
      const auto inside = std::ranges::find(own, x);
      at.push_back(x == rows.along ? int_variable(row) : inside != own.end() ? Expr(static_cast<int>(r.at[static_cast<size_t>(inside - own.begin())])) : around.at(x));
    }
    const SpecTensor& t = spec_.tensors[r.m->tensor];
    const bool unit = !dims.empty() && dims.back() + 1 == r.m->left.size() && (t.dense || t.rows);
    const Halide::Type type = storage_type(t.type);
    turned_out.push_back(stored_at(buffer, loaded(type, r.block, int_variable(in)), element(buffer, at, unit), buffers.at(buffer)));
  }
  all = hi::Block::make(all, serial(in, 0, int_variable(count), hi::LetStmt::make(row, int_variable(first) + int_variable(in), hi::Block::make(turned_out))));
  for (const Reads::Kept& k : reads.kept) all = on_stack(k.of, k.from.type(), room, all);
  for (const Result& r : results) all = on_stack(r.block, storage_type(spec_.tensors[r.m->tensor].type), room, all);
  all = hi::LetStmt::make(count, Halide::min(extent(rows.along) - int_variable(first), room), all);
  all = hi::LetStmt::make(first, int_variable(block) * room, all);
  all = serial(block, 0, (extent(rows.along) + (room - 1)) / room, all);
  for (size_t i = rows.outer.size(); i-- > 0;) all = serial("xh_" + spec_.arena->name(rows.outer[i]), 0, extent(rows.outer[i]), all);
  for (size_t i = lets.size(); i-- > 0;) all = hi::LetStmt::make(lets[i].first, lets[i].second, all);
  auto* pass = new Replaced;
  pass->with = hi::simplify(hi::vectorize_loops(hi::simplify(all), {}));
  out_.pipeline.add_custom_lowering_pass(pass);
}

}  // namespace xhat::runtime
