// Results in short rows, y[n,k] for k in 0..3, that cost more than their memory: along k most lanes of a vector would idle, so vectors run
// across the rows. Each holds one k of sixteen n, and all k follow each other:
//
//   for each sixteen n:  for each k (unrolled):  y[n,k] = value, a vector along n
//
// What all k read is read once. Sums add their terms in the same order as along k.
#include <algorithm>
#include <set>

#include "cse/normalize/auto_inliner.h"
#include "fusion/plan/vector_price.h"
#include "runtime/cpu/lowering.h"

namespace xhat::runtime {
namespace {

constexpr int64_t kMostInShortRow = 8;  // results that are unrolled, with an accumulator for each
constexpr double kGain = 0.7;           // of the price along the row: what comes in whole rows leaves in shuffles

}  // namespace

// By how much the place in memory changes along an axis; none if it is not known.
std::optional<int64_t> Lowering::step_in_memory(Id read, Id x) const {
  const Node& n = (*spec_.arena)[read];
  const SpecTensor& t = spec_.tensors[n.symbol];
  const auto indices = read_indices(n);
  int64_t step = 0, stride = 1;
  for (size_t d = indices.size(); d-- > 0; stride *= t.shape[d]) {
    const auto along = step_along(*spec_.arena, indices[d], x);
    if (!along || (*along != 0 && d + 1 < indices.size() && !t.dense)) return {};
    step += *along * stride;
  }
  return step;
}

// What lies in short rows is loaded in vectors, and taken apart in registers, where the code knows how far apart the rows are.
std::vector<int> Lowering::known_strides(const SpecTensor& t) const {
  std::vector<int> strides;
  int64_t stride = 1;
  for (size_t d = t.shape.size(); t.dense && !spec_.any_size() && d-- > 1;) {
    stride *= t.shape[d];
    if (stride < 2 || stride > kMostInShortRow) break;
    strides.push_back(static_cast<int>(stride));
  }
  return strides;
}

void Lowering::know_strides(const std::vector<size_t>& group, Id x) {
  const Arena& a = *spec_.arena;
  std::vector<Id> bodies;
  for (const SpecMember* m : members_of(group)) bodies.insert(bodies.end(), {m->body, m->condition});
  for (Id id : reachable(a, bodies)) {
    const Node& n = a[id];
    if (x == kNone || !is_read(n.op) || read_indices(n).empty() || !n.depends_on(x)) continue;
    const auto step = step_in_memory(id, x);
    if (spec_.tensors[n.symbol].use != SpecTensor::Use::input || !step || *step < 2 || *step > kDenseStep) continue;
    const std::vector<int> strides = known_strides(spec_.tensors[n.symbol]);
    for (size_t d = 0; d < strides.size(); ++d) emit_.inputs[n.symbol].dim(static_cast<int>(d + 1)).set_stride(strides[d]);
  }
}

Lowering::ShortRows Lowering::in_short_rows(const std::vector<size_t>& group, Id v) const {
  const Arena& a = *spec_.arena;
  const SpecMember& m = spec_.members[group[0]];
  const int lanes = natural(widest(m));
  if (!vectors_ || v == kNone || m.left.empty() || v != m.left.back() || m.left.size() < 2 || !m.scatter.empty()) return {};
  if (in_segments(m, m.left) || in_segments(m, m.reduced)) return {};
  ShortRows s;
  int64_t in_row = 1;
  size_t first = m.left.size();
  for (; first > 0; --first) {
    const Id x = m.left[first - 1];
    if (!constant(x) || axis(x).unrolled || in_row * axis(x).extent > kMostInShortRow) break;
    in_row *= axis(x).extent;
    s.row.push_back(x);
  }
  if (first == 0 || s.row.empty() || in_row < 2) return {};
  const Id x = m.left[first - 1];
  // Of tiles, and of what is given at the call, the code does not know how many there are.
  const bool long_enough = axis(x).kind() != AxisKind::point && (!constant(x) || axis(x).extent >= lanes);
  if (!long_enough || axis(x).unrolled || one_in_row(x)) return {};
  std::vector<Id> roots;
  for (const SpecMember* each : members_of(group)) {
    roots.push_back(each->body);
    roots.push_back(each->condition);
  }
  // What leaves has gaps, once for all terms of a sum. What stays lies as it is needed.
  const bool leaves = spec_.tensors[m.tensor].use != SpecTensor::Use::temporary;
  double term = 0, along = 0, across = 0;
  if (leaves) across = static_cast<double>(in_row) / lanes / static_cast<double>(std::max<int64_t>(1, spec_.terms(m)));
  for (size_t g : group) term += static_cast<double>(evaluation_cost_ps(a, spec_.members[g].body)) / static_cast<double>(info(Op::add).cost_ps);
  auto loads = [&](Id read, Id by) {
    const auto step = step_in_memory(read, by);
    if (step && (*step == 0 || *step == 1)) return 0.0;
    return step && *step > 1 && *step <= kDenseStep ? std::min(1.0, static_cast<double>(*step) / lanes) : 1.0;
  };
  auto lies_across = [&](const Node& n) {
    return std::ranges::any_of(spec_.members, [&](const SpecMember& made) {
      const bool stays = made.tensor == n.symbol && spec_.tensors[made.tensor].use == SpecTensor::Use::temporary;
      return stays && made.op == Op::constant && std::ranges::equal(read_indices(n), m.left);
    });
  };
  for (Id id : reachable(a, roots)) {
    const Node& n = a[id];
    if (!is_read(n.op) || read_indices(n).empty()) continue;
    auto has = [&](Id by) { return n.depends_on(by); };
    if (n.op != Op::read && has(x)) return {};  // edges of windows
    if (has(v)) along += loads(id, v);
    // What does not differ along the row is read once for all of it.
    double times = 1;
    for (Id each : s.row)
      if (!has(each)) times /= static_cast<double>(axis(each).extent);
    if (has(x) && !lies_across(n)) across += loads(id, x) * times;
  }
  if (vector_price(term, across, lanes) > kGain * vector_price(term, along, lanes_filled(axis(v).extent, lanes))) return {};
  s.across = x;
  return s;
}

// Is it read in vectors along the same axis only?
bool Lowering::read_across(const SpecMember& made, const ShortRows& s) const {
  const auto at = static_cast<size_t>(std::ranges::find(made.left, s.across) - made.left.begin());
  for (size_t i = 0; i < spec_.members.size(); ++i) {
    const SpecMember& m = spec_.members[i];
    for (const Access& x : reads(m)) {
      if (x.tensor != made.tensor) continue;
      Id v = vector_axis({i});
      if (const ShortRows its = in_short_rows({i}, v)) v = its.across;
      if (x.indices[at] != v || x.may_miss) return false;
    }
  }
  return true;
}

void Lowering::map_across(Func f, const std::vector<size_t>& group, const ShortRows& s, TailStrategy tail) {
  know_strides(group, s.across);
  const SpecMember& m = spec_.members[group[0]];
  const Var x = vars_.at(s.across), outer("ro"), inner("ri");
  std::vector<VarOrRVar> order = {inner};
  for (Id each : s.row) order.emplace_back(vars_.at(each));
  order.emplace_back(outer);
  std::vector<Var> storage = {x};
  for (Id each : s.row) storage.push_back(vars_.at(each));
  for (Id each : rows_of(m, s.row[0])) {
    if (each == s.across || std::ranges::find(s.row, each) != s.row.end()) continue;
    order.emplace_back(vars_.at(each));
    storage.push_back(vars_.at(each));
  }
  for (Id each : s.row) f.bound(vars_.at(each), 0, static_cast<int>(axis(each).extent));
  f.split(x, outer, inner, natural(widest(m)), tail).reorder(order).vectorize(inner);
  for (Id each : s.row) f.unroll(vars_.at(each));
  const bool stays = std::ranges::all_of(members_of(group), [&](const SpecMember* each) {
    return spec_.tensors[each->tensor].use == SpecTensor::Use::temporary && read_across(*each, s);
  });
  if (stays) f.reorder_storage(storage);
}

// As many sums as a row has, a vector of each: they stay in registers over all terms.
void Lowering::sum_across(const std::vector<size_t>& group, const ShortRows& s) {
  const SpecMember& m = spec_.members[group[0]];
  const int width = natural(widest(m));
  const Var x = vars_.at(s.across);
  std::vector<Var> left = func_vars(m);
  const std::vector<Expr> at = exprs(left);
  Func acc(name("acc", m.tensor));
  define(acc, at, identities(group));
  auto [r, axes] = loops_of(m);
  const bool whole = constant(s.across);
  if (!whole) axes[s.across] = Halide::min(Halide::likely(x), extent(s.across) - 1);  // its vectors are whole
  define(acc, at, steps(group, acc, at, axes, r));
  Func result = results_of_sums(group, acc);

  map_across(result, group, s, whole ? TailStrategy::ShiftInwards : TailStrategy::GuardWithIf);
  std::vector<VarOrRVar> order = {x};
  for (Id each : s.row) order.emplace_back(vars_.at(each));
  for (int i = 0; i < r.dimensions(); ++i) order.emplace_back(RVar(r[i]));
  for (Id each : rows_of(m, s.row[0]))
    if (each != s.across && std::ranges::find(s.row, each) == s.row.end()) order.emplace_back(vars_.at(each));
  std::vector<Var> storage = {x};
  for (Id each : s.row) storage.push_back(vars_.at(each));
  for (const Var& other : left)
    if (std::ranges::find(storage, other.name(), [](const Var& v) { return v.name(); }) == storage.end()) storage.push_back(other);
  acc.reorder_storage(storage);
  acc.compute_at(result, Var("ro")).bound_extent(x, width).vectorize(x, width);
  acc.update(0).reorder(order).vectorize(x, width);
  for (Id each : s.row) {
    acc.bound(vars_.at(each), 0, static_cast<int>(axis(each).extent)).unroll(vars_.at(each));
    acc.update(0).unroll(vars_.at(each));
  }
  for (int i = 0; i < r.dimensions(); ++i) acc.update(0).never_partition(RVar(r[i]));
  leave_all(group, result);
}

}  // namespace xhat::runtime
