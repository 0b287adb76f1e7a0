// Sums of which nearly all terms are 0, gradients of maxima and minima: a term stands where a value equals the extreme.
//
//   g[k,d] = sum(n if mask[n,k]: x[n,d])
//
//   asked[n, block] = any(mask[n, a block of k])          in vectors
//   for each n:  for each block of k:  if asked:  for k in it:  if mask[n,k]:  g[k, ...] += x[n, ...]
//
// The result stays in memory. What is asked is read in the order in which it lies; where it does not hold, nothing else is read.
#include <algorithm>
#include <iterator>
#include <map>

#include "expr/core/conditions.h"
#include "expr/core/mostly_zero.h"
#include "runtime/cpu/ir/asked_first.h"
#include "runtime/cpu/lowering.h"

namespace xhat::runtime {
namespace {

constexpr int kAsked = 16;  // places that are asked for together

}  // namespace

std::optional<Lowering::Rare> Lowering::rare_terms(const SpecMember& m) const {
  Arena& a = *spec_.arena;
  if (!vectors_ || m.op != Op::sum || m.reduced.empty() || !m.scatter.empty() || spec_.carried_over(m) != kNone) return {};
  if (!is_float(accumulated(m)) || in_segments(m, m.left) || in_segments(m, m.reduced)) return {};
  std::function<bool(TensorId)> is_zero = [&](TensorId t) {
    const SpecTensor& x = spec_.tensors[t];
    if (x.use != SpecTensor::Use::temporary || x.mostly_zero) return x.mostly_zero;
    const auto maker = std::ranges::find(spec_.members, t, &SpecMember::tensor);
    return maker != spec_.members.end() && maker->op == Op::constant && where_not_zero(a, maker->body, is_zero) != kNone;
  };
  Rare rare{where_not_zero(a, m.body, is_zero), kNone, {}};
  for (Id part : conjuncts(a, m.condition))
    if (where_not_zero(a, part, is_zero) != kNone) rare.where = rare.where == kNone ? part : a.land(rare.where, part);
  if (rare.where == kNone) return {};
  auto walked = [&](Id x) { return axis(x).kind() != AxisKind::point; };
  auto asks = [&](Id x) { return a[rare.where].depends_on(x); };
  // Nothing is saved where each result has a condition of its own: vectors of these add 0.
  if (std::ranges::none_of(m.left, [&](Id x) { return walked(x) && !asks(x); })) return {};
  auto ask_along = [&](Id x) {  // once, also along the diagonal s[i,i]
    if (walked(x) && std::ranges::find(rare.asked, x) == rare.asked.end()) rare.asked.push_back(x);
  };
  size_t most = 0;
  for (Id id : reachable(a, std::vector<Id>{rare.where})) {
    const Node& n = a[id];
    if (!is_read(n.op) || n.free_axes().size() <= most) continue;
    most = n.free_axes().size();
    rare.asked.clear();
    const auto indices = read_indices(n);
    for (size_t d = indices.size(); d-- > 0;)
      if (a[indices[d]].op == Op::axis) ask_along(indices[d]);
    rare.along = !rare.asked.empty() && indices.back() == rare.asked[0] ? rare.asked[0] : kNone;
  }
  for (const std::vector<Id>& axes : {m.reduced, m.left})
    for (size_t i = axes.size(); i-- > 0;)
      if (asks(axes[i])) ask_along(axes[i]);
  return rare;
}

void Lowering::rare_sum(const SpecMember& m, const Rare& rare) {
  const auto me = static_cast<size_t>(&m - spec_.members.data());
  const std::vector<Var> left = func_vars(m);
  const std::vector<Expr> at = exprs(left);
  Func acc(name("acc", m.tensor));
  define(acc, at, identities({me}));

  // All loops, the innermost first. That over what is asked for together stands for two: the places in a block, and the blocks.
  std::vector<Id> loops;
  auto is_asked = [&](Id x) { return std::ranges::find(rare.asked, x) != rare.asked.end(); };
  for (const auto* axes_of : {&m.left, &m.reduced})
    std::ranges::copy_if(axes_of->rbegin(), axes_of->rend(), std::back_inserter(loops), [&](Id x) { return !is_asked(x); });
  loops.insert(loops.end(), rare.asked.begin(), rare.asked.end());
  std::erase_if(loops, [&](Id x) { return std::ranges::find(m.reduced, x) == m.reduced.end() && axis(x).kind() == AxisKind::point; });
  std::vector<Halide::Range> ranges;
  std::map<Id, int> dimension;  // of r; of what is asked for together, that of the places in a block
  for (Id x : loops) {
    if (x != rare.along && std::ranges::find(m.reduced, x) == m.reduced.end()) continue;
    dimension[x] = static_cast<int>(ranges.size());
    ranges.emplace_back(0, x == rare.along ? Expr(kAsked) : extent(x));
    if (x == rare.along) ranges.emplace_back(0, (extent(x) + (kAsked - 1)) / kAsked);
  }
  RDom r{Halide::Region(ranges)};
  Emitter::Axes axes = left_locals(m);
  for (Id x : m.reduced)
    if (x != rare.along) axes[x] = r[dimension.at(x)];
  std::vector<Expr> into = at;
  if (rare.along != kNone) {
    const Expr here_block = r[dimension.at(rare.along) + 1], place_along = here_block * kAsked + r[dimension.at(rare.along)];
    for (size_t i = 0; i < left.size(); ++i)
      if (left[i].name() == vars_.at(rare.along).name()) into[i] = place_along;
    Func asked(name(kAskedBuffer, m.tensor));
    Var block("block");
    RDom in_block(0, kAsked);
    std::vector<Expr> of = {block}, here = {here_block};
    Emitter::Axes places = axes;
    for (Id x : m.reduced)
      if (axis(x).kind() == AxisKind::point) places[x] = 0;
    for (Id x : rare.asked) {
      if (x == rare.along) continue;
      of.push_back(places[x] = Expr(vars_.at(x)));
      here.push_back(axes.at(x));
    }
    const Expr last = extent(rare.along) - 1;
    places[rare.along] = Halide::min(block * kAsked + in_block, last);
    define(asked, of, {Halide::Internal::const_false()});
    define(asked, of, {asked(of) || emit_.condition(rare.where, places)});
    asked.update(0).atomic().vectorize(RVar(in_block[0]));
    place(asked);
    r.where(asked(here));
    if (!constant(rare.along) || axis(rare.along).extent % kAsked != 0) r.where(place_along <= last);
    axes[rare.along] = Halide::min(place_along, last);
  }
  r.where(emit_.condition(rare.where, axes));
  for (Id part : conjuncts(*spec_.arena, rare.where)) emit_.given[part] = Halide::Internal::const_true();
  define(acc, into, steps({me}, acc, into, axes, r));
  emit_.given.clear();

  std::vector<VarOrRVar> order;
  for (Id x : loops) {
    const auto found = dimension.find(x);
    if (found == dimension.end())
      order.emplace_back(vars_.at(x));
    else
      order.emplace_back(RVar(r[found->second]));
    if (x == rare.along) order.emplace_back(RVar(r[found->second + 1]));
  }
  acc.update(0).reorder(order);
  // A term's results lie beside each other.
  std::vector<Var> storage;
  Id v = kNone;
  for (bool of_term : {true, false})
    for (auto x = m.left.rbegin(); x != m.left.rend(); ++x) {
      if (axis(*x).kind() == AxisKind::point || is_asked(*x) == of_term) continue;
      storage.push_back(vars_.at(*x));
      if (v == kNone) v = *x;
    }
  if (storage.size() > 1) acc.reorder_storage(storage);
  vectorize(acc, vars_.at(v), v, widest(m), 1);
  vectorize(acc.update(0), vars_.at(v), v, widest(m), 1);
  place(acc);
  results_of(
      {me}, [&](size_t i) { return element(acc, at, i, 1); }, true);
}

}  // namespace xhat::runtime
