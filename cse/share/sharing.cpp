#include "cse/share/sharing.h"

#include <algorithm>
#include <cmath>

#include "cse/normalize/auto_inliner.h"
#include "expr/core/machine_model.h"

namespace xhat {
namespace {

constexpr int kMaxFolds = 8;           // occurrences of one value in one product, under different axes
constexpr double kNominalExtent = 64;  // for comparing shares of different rank

const Factor* factor_of(const Product& p, Id atom) {
  auto it = std::ranges::lower_bound(p.factors, atom, {}, &Factor::atom);
  return it != p.factors.end() && it->atom == atom ? &*it : nullptr;
}

bool same_sign(int x, int y) { return (x > 0) == (y > 0); }

}  // namespace

std::span<const std::pair<uint64_t, size_t>> BackwardPart::of_shape(uint64_t shape) const {
  auto [first, last] = std::ranges::equal_range(by_shape, shape, {}, &std::pair<uint64_t, size_t>::first);
  return {first, last};
}

BackwardPart Sharing::backward_part(const Product& form, std::span<const AxisRange> scope) {
  BackwardPart part{form, {scope.begin(), scope.end()}, {}};
  for (size_t i = 0; i < form.factors.size(); ++i) part.by_shape.push_back({tree_.shape(form.factors[i].atom), i});
  std::ranges::sort(part.by_shape);
  return part;
}

Unifier& Sharing::unifier(std::span<const AxisRange> axes) {
  std::set<Id> own;
  for (const AxisRange& r : axes) own.insert(r.axis);
  return unifiers_.try_emplace(own, tree_, own).first->second;
}

int64_t Sharing::cost_ps(Id value) {
  auto it = costs_.find(value);
  if (it == costs_.end()) it = costs_.emplace(value, evaluation_cost_ps(a_, value)).first;
  return it->second;
}

const Product& Sharing::instance(Id atom, const Binding& binding) {
  auto& known = instances_[binding];
  auto it = known.find(atom);
  if (it != known.end()) return it->second;
  Replacements at(binding.begin(), binding.end());
  Product made = tree_.form(rewrite(a_, substitute(a_, atom, at), [&](Id id) { return tidy_index(a_, id); }));
  return known.emplace(atom, std::move(made)).first->second;
}

Product Sharing::instance(const Product& pattern, const Binding& binding) {
  Product result{pattern.coefficient, {}};
  for (const Factor& f : pattern.factors) tree_.multiply_in(result, instance(f.atom, binding), f.halves);
  return result;
}

bool Sharing::is_known(Id condition, const Binding& binding) {
  const Id here = substitute(a_, condition, Replacements(binding.begin(), binding.end()));
  return std::ranges::all_of(conjuncts(a_, here), [&](Id c) { return xhat::is_known(a_, known, c); });
}

Product Sharing::replacement(const Program& p, const StoredValue& v, const Binding& binding) {
  if (v.read != kNone) return v.value(tree_.form(v.read));
  std::vector<Id> indices;
  for (const AxisRange& r : v.free) indices.push_back(tidy_index(a_, binding.at(r.axis)));
  return v.value(tree_.form(read_at(a_, p, v.tensor, indices)));
}

// What changes between the two, per point of the innermost loop that any of it is in. A value (other than
// the chosen one) that the forward would have to write for this costs its write too; one that the caller drops is
// written and read only for this. An output that is read beside all that was read before is read for this.
int64_t Sharing::saved_ps(const Program& p, TensorId chosen, const Product& before, const Product& after) {
  constexpr int64_t kWritten_ps = 120;
  auto nodes = [&](const Product& product) {
    std::vector<Id> roots;
    for (const Factor& f : product.factors) roots.push_back(tree_.to_expression({1, {f}}, a_[f.atom].type));
    return reachable(a_, roots);  // ascending
  };
  std::vector<Id> first = nodes(before), second = nodes(after), gone, come;
  std::ranges::set_difference(first, second, std::back_inserter(gone));
  std::ranges::set_difference(second, first, std::back_inserter(come));
  size_t rank = 0;
  for (Id id : gone) rank = std::max<size_t>(rank, a_[id].axes_count);
  auto price = [&](const std::vector<Id>& ids) {
    int64_t sum = 0;
    for (Id id : ids) {
      const Node& n = a_[id];
      // A row that need not be kept is next to nothing, but more than that.
      if (n.axes_count < rank && is_read(n.op) && has_tensor(p.outputs, chosen))
        sum += p.tensors[n.symbol].role == Role::defined && !has_tensor(p.outputs, n.symbol);
      if (n.axes_count < rank || (!is_float(n.type) && n.type != DType::boolean)) continue;
      sum += xhat::cost_ps(a_, n);
      bool free = !is_read(n.op) || n.symbol == chosen || has_tensor(p.outputs, n.symbol);
      if (!free && p.tensors[n.symbol].role == Role::defined) sum += kWritten_ps;
      if (is_read(n.op) && dropped_.contains(n.symbol)) sum += kKept_ps;
    }
    return sum;
  };
  auto reads = [&](const std::vector<Id>& ids, auto&& which) {
    return std::ranges::any_of(ids, [&](Id id) { return is_read(a_[id].op) && a_[id].axes_count >= rank && which(a_[id].symbol); });
  };
  bool beside =
      has_tensor(p.outputs, chosen) && reads(come, [&](TensorId t) { return t == chosen; }) && !reads(gone, [](TensorId) { return true; });
  return price(gone) - price(come) - (beside ? kRead_ps : 0);
}

// Factors over all axes must be there; of the others, divisors may be missing: exp(x-m) is y*s for y = exp(x-m)/s.
std::vector<Factor> Sharing::required(const StoredValue& v) const {
  std::vector<Factor> found;
  for (const Factor& f : v.form.factors) {
    std::span<const Id> free = a_[f.atom].free_axes();
    if (std::ranges::all_of(v.free, [&](const AxisRange& r) { return std::ranges::find(free, r.axis) != free.end(); })) found.push_back(f);
  }
  return found.empty() || v.whole ? v.form.factors : found;
}

Wanted Sharing::wanted(const std::vector<StoredValue>& forms) {
  Wanted w;
  for (const StoredValue& v : forms) w.shapes.push_back(tree_.shape(required(v)[0].atom));
  w.guards = std::ranges::any_of(forms, [](const StoredValue& v) { return v.condition != kNone; });
  std::ranges::sort(w.shapes);
  return w;
}

std::optional<Product> Sharing::fold_once(const Program& p, const Product& target, const StoredValue& v, std::span<const AxisRange> scope,
                                          bool any_price) {
  const std::vector<Factor> required = this->required(v);
  for (const Binding& found : unifier(v.free).contained(required, target.factors)) {
    if (!covers(a_, v.free, found, scope) || (v.condition != kNone && !is_known(v.condition, found))) continue;
    Product whole = instance(v.form, found), core = instance({1, required}, found);
    if (core.is_number()) continue;
    Product by = replacement(p, v, found);
    Product result = target;
    // All powers at once: the last occurrence is what saves the evaluation.
    auto contained_in = [&](const Product& q) {
      return std::ranges::all_of(whole.factors, [&](const Factor& f) {
        const Factor* t = factor_of(q, f.atom);
        bool must = factor_of(core, f.atom) != nullptr;
        bool there = t && same_sign(t->halves, f.halves) && std::abs(t->halves) >= std::abs(f.halves);
        return there || (f.halves < 0 && !must);
      });
    };
    if (!contained_in(target)) continue;
    // The square of a root stands for u itself only where u cannot be negative: elsewhere it is NaN, and u may be read in a branch that asks.
    if (!std::ranges::all_of(whole.factors, [&](const Factor& f) {
          const Factor* t = factor_of(target, f.atom);
          return f.halves % 2 == 0 || !t || t->halves % 2 != 0 || nonnegative_(f.atom);
        }))
      continue;
    Product inverse = tree_.power(whole, -2);
    do result = tree_.multiply(tree_.multiply(result, inverse), by);
    while (!result.is_zero() && contained_in(result));
    // 1/read is good only where it cancels.
    auto below = [&](const Factor& f) { return f.halves < 0 && has_tensor(tensors_read(a_, f.atom), v.tensor); };
    if (v.numerator && std::ranges::any_of(result.factors, below)) continue;
    if (any_price || saved_ps(p, v.tensor, target, result) > 0) return result;
  }
  return std::nullopt;
}

Product Sharing::fold(const Program& p, const Product& target, const std::vector<StoredValue>& forms, std::span<const AxisRange> scope) {
  auto all = [&](bool any_price) {
    Product result = target;
    for (const StoredValue& v : forms)
      for (int i = 0; i < kMaxFolds; ++i) {
        auto next = fold_once(p, result, v, scope, any_price);
        if (!next || (with_all_digits && !any_price && !keeps_digits_(result, *next))) break;
        result = std::move(*next);
      }
    return result;
  };
  // Several forms together may pay where one alone does not: exp(-x)*s^-2 is y*(1-y) for y = 1/s, s = 1 +
  // exp(-x).
  if (forms.size() > 1)
    if (Product together = all(true); saved_ps(p, forms[0].tensor, target, together) > 0)
      if (!with_all_digits || keeps_digits_(target, together)) return together;
  return all(false);
}

// x - t is one read where x and t are two; it counts where x or t must be kept for it: is dropped, or a value of the forward
// that nobody else is given. What is made of the difference is made of that one.
int64_t Sharing::spared_reads_ps(Id value, size_t rank) const {
  if (a_[value].op != Op::sub && a_[value].op != Op::add) return 0;
  std::set<TensorId> read;
  bool counts = false;
  for (Id id : reachable(a_, value))
    if (is_read(a_[id].op) && a_[id].axes_count == rank) {
      read.insert(a_[id].symbol);
      counts = counts || kept_(a_[id].symbol);
    }
  return counts ? kRead_ps * (static_cast<int64_t>(read.size()) - 1) : 0;
}

// What the power of a factor costs beside the factor: alone, it may need a step that is shared with others in the whole.
static int64_t power_ps(int halves, bool root) {
  int64_t cost = info(halves > 0 ? Op::mul : Op::div).cost_ps;
  if (root) cost += info(Op::sqrt).cost_ps + info(Op::mul).cost_ps;
  if (std::abs(halves) > 2) cost += info(Op::pow).cost_ps;
  return cost;
}

double Sharing::score_of(const ForwardPart& part, int64_t cost_ps) {
  std::vector<Id> free = tree_.free_axes(part.form);
  auto used = std::ranges::count_if(part.scope, [&](const AxisRange& r) { return std::ranges::binary_search(free, r.axis); });
  return static_cast<double>(cost_ps) * std::pow(kNominalExtent, static_cast<double>(used));
}

double Sharing::highest_score(const ForwardPart& part, bool roots) {
  int64_t cost = cost_ps(tree_.to_expression({1, part.form.factors}, a_[part.form.factors[0].atom].type));
  for (const Factor& f : part.form.factors) cost += power_ps(f.halves, roots || f.halves % 2 != 0);
  return score_of(part, cost);
}

double Sharing::highest_score(const ForwardPart& part, const BackwardPart& target) {
  int64_t cost = 0;
  bool sum = false;  // which may spare reads beside what it costs
  for (const Factor& f : part.form.factors) {
    int64_t most = 0;
    for (auto [unused, at] : target.of_shape(tree_.shape(f.atom))) {
      const int other = target.form.factors[at].halves;
      sum |= tree_.terms(f.atom) != nullptr;
      if (same_sign(f.halves, other)) most = std::max(most, cost_ps(f.atom) + power_ps(f.halves, f.halves % 2 != 0 || other % 2 != 0));
    }
    cost += most;
  }
  return cost < kWorthStoring_ps && !sum ? -1 : score_of(part, cost);
}

std::optional<Share> Sharing::common(const ForwardPart& part, const BackwardPart& target) {
  Unifier& unify = unifier(part.scope);
  auto is_axis = [&](Id x) { return std::ranges::find(part.scope, x, &AxisRange::axis) != part.scope.end(); };
  std::optional<Share> best;
  std::set<Binding> tried;
  for (const Factor& seed : part.form.factors)
    for (auto [unused, at] : target.of_shape(tree_.shape(seed.atom))) {
      const Factor& t = target.form.factors[at];
      if (!same_sign(seed.halves, t.halves)) continue;
      auto binding = unify.atoms(seed.atom, t.atom);
      // What is shared depends on the binding, and not on the factor that told it.
      if (!binding || !tried.insert(*binding).second) continue;
      Product shared{1, {}};
      for (const Factor& f : part.form.factors) {
        Binding wider = *binding;
        bool bound = std::ranges::all_of(a_[f.atom].free_axes(), [&](Id x) { return !is_axis(x) || wider.contains(x); });
        if (!bound) {
          auto more = unify.contained(std::span(&f, 1), target.form.factors, wider);
          if (more.empty()) continue;
          wider = more[0];
        }
        Product now = tree_.power(instance(f.atom, wider), f.halves > 0 ? 2 : -2);
        if (now.factors.size() != 1) continue;
        const Factor* other = factor_of(target.form, now.factors[0].atom);
        if (!other || !same_sign(other->halves, f.halves)) continue;
        int halves = std::min(std::abs(f.halves), std::abs(other->halves));
        shared.factors.push_back({f.atom, f.halves > 0 ? halves : -halves});
        binding = wider;
      }
      if (shared.factors.empty()) continue;
      std::vector<AxisRange> used;
      bool independent = true;
      std::vector<Id> free = tree_.free_axes(shared);
      for (const AxisRange& r : part.scope)
        if (std::ranges::binary_search(free, r.axis)) {
          used.push_back(r);
          independent = independent && a_[r.end].axes_count == 0;
        }
      if (!independent || !covers(a_, used, *binding, target.scope)) continue;
      // x + 1 is not worth it, nor is what takes a step or two.
      if (shared.factors.size() == 1 && shared.factors[0].halves == 2)
        if (const auto* terms = tree_.terms(shared.factors[0].atom))
          if (terms->size() == 2 && (*terms)[1].is_number() && (*terms)[0].factors.size() == 1) continue;
      Id value = tree_.to_expression(shared, a_[shared.factors[0].atom].type);
      int64_t cost = cost_ps(value);
      if (cost + spared_reads_ps(value, used.size()) < kWorthStoring_ps) continue;
      double score = static_cast<double>(cost) * std::pow(kNominalExtent, static_cast<double>(used.size()));
      if (!best || score > best->score) best = Share{&part, shared, score};
    }
  return best;
}

// Nodes of the expression that are not among those met before, operands first; what has been met was met with its operands.
static std::vector<Id> newly_met(const Arena& a, Id root, auto&& insert) {
  std::vector<Id> found;
  if (insert(root)) found.push_back(root);
  for (size_t open = 0; open < found.size(); ++open)
    for (Id x : a[found[open]].args())
      if (x != kNone && insert(x)) found.push_back(x);
  std::ranges::sort(found);
  return found;
}

// What can be a product of its own in a condition.
static bool is_compared(const Node& n) { return is_float(n.type) && !is_read(n.op) && n.op != Op::constant; }

// The products and conditions right inside an atom.
template <class F, class C>
void Sharing::each_inside(Id atom, F&& f, C&& on_condition) {
  const Node n = a_[atom];
  if (const auto* terms = tree_.terms(atom)) {
    for (const Product& t : *terms) f(t);
  } else if (const Product* product = tree_.factors(atom)) {
    f(*product);
  } else if (n.op != Op::read && !is_reduction(n.op)) {
    for (Id x : n.args()) {
      if (is_float(a_[x].type)) f(tree_.form(x));
      if (a_[x].type == DType::boolean) on_condition(x);
    }
  }
}

bool Sharing::holds(const Product& p, Wanted& wanted, int depth) {
  return std::ranges::any_of(p.factors, [&](const Factor& f) {
    return std::ranges::binary_search(wanted.shapes, tree_.shape(f.atom)) || holds_below(f.atom, wanted, depth);
  });
}

bool Sharing::holds_below(Id node, Wanted& wanted, int depth) {
  if (depth > kDeepest) return false;
  if (auto it = wanted.below.find(node); it != wanted.below.end()) return it->second;
  bool found = false;
  if (a_[node].type == DType::boolean)
    found = holds_reached(node, wanted);
  else
    each_inside(
        node, [&](const Product& p) { found = found || holds(p, wanted, depth + 1); },
        [&](Id condition) { found = found || holds_below(condition, wanted, depth + 1); });
  return wanted.below[node] = found;
}

// Operands first, so that what is asked of a node finds the answers for what it is made of. Every node is asked about once, however
// many conditions it is part of: in x^x^x^… every power has one, which compares all of the next power.
bool Sharing::holds_reached(Id node, Wanted& wanted) {
  std::set<Id> met;
  for (Id x : newly_met(a_, node, [&](Id id) { return !wanted.reached.contains(id) && met.insert(id).second; })) {
    const Node n = a_[x];
    const bool below = std::ranges::any_of(n.args(), [&](Id arg) { return arg != kNone && wanted.reached.at(arg); });
    const bool here = below || (is_compared(n) && holds(tree_.form(x), wanted, 0));
    wanted.reached[x] = here;
  }
  return wanted.reached.at(node);
}

Product Sharing::everywhere(const Product& root, Wanted& wanted, const Step& f) {
  memo_.clear();
  in_conditions_.clear();
  return walk(root, wanted, f, 0);
}

Id Sharing::in_condition(Id condition, Wanted& wanted, const Step& f) {
  memo_.clear();
  in_conditions_.clear();
  return walk_condition(condition, wanted, f, 0);
}

bool Sharing::each_product(const Product& root, const Look& look) {
  Seen seen;
  return look_at(root, look, seen, 0);
}

bool Sharing::each_product_in_condition(Id condition, const Look& look) {
  Seen seen;
  return look_at_condition(condition, look, seen, 0);
}

bool Sharing::look_at_condition(Id condition, const Look& look, Seen& seen, int depth) {
  bool all = true;
  for (Id x : newly_met(a_, condition, [&](Id id) { return seen.reached.insert(id).second; }))
    if (is_compared(a_[x])) all &= look_at(tree_.form(x), look, seen, depth);
  return all;
}

bool Sharing::look_at(const Product& root, const Look& look, Seen& seen, int depth) {
  if (depth > kDeepest) return false;
  look(root);
  bool all = true;
  for (const Factor& f : root.factors)
    if (seen.atoms.insert(f.atom).second)
      each_inside(
          f.atom, [&](const Product& p) { all &= look_at(p, look, seen, depth + 1); },
          [&](Id condition) { all &= look_at_condition(condition, look, seen, depth + 1); });
  return all;
}

Product Sharing::walk(const Product& root, Wanted& wanted, const Step& f, int depth) {
  if (depth > kDeepest) return root;
  Product now = f(root);
  Product result{now.coefficient, {}};
  for (const Factor& factor : now.factors) {
    auto it = memo_[known].find(factor.atom);
    Id atom = it != memo_[known].end() ? it->second : walk_atom(factor.atom, wanted, f, depth + 1);
    memo_[known][factor.atom] = atom;
    if (atom == factor.atom)
      tree_.multiply_in(result, factor);
    else
      tree_.multiply_in(result, tree_.form(atom), factor.halves);
  }
  return result;
}

Id Sharing::walk_atom(Id atom, Wanted& wanted, const Step& f, int depth) {
  const Node n = a_[atom];
  if (!holds_below(atom, wanted, 0)) return atom;
  if (const auto* found = tree_.terms(atom)) {
    std::vector<Product> terms = *found;
    for (Product& t : terms) t = walk(t, wanted, f, depth);
    return tree_.to_expression(tree_.add(n.type, terms), n.type);
  }
  if (const Product* product = tree_.factors(atom)) return tree_.to_expression(walk(Product(*product), wanted, f, depth), n.type);
  if (n.op == Op::read || is_reduction(n.op)) return atom;
  std::vector<Id> args;
  for (Id x : n.args()) {
    if (is_float(a_[x].type) && wanted.guards && n.op == Op::select && x == n.arg(1)) {
      const std::vector<Id> around = known, holds = conjuncts(a_, n.arg(0));
      known.insert(known.end(), holds.begin(), holds.end());
      args.push_back(tree_.to_expression(walk(tree_.form(x), wanted, f, depth), a_[x].type));
      known = around;
    } else if (is_float(a_[x].type))
      args.push_back(tree_.to_expression(walk(tree_.form(x), wanted, f, depth), a_[x].type));
    else
      args.push_back(a_[x].type == DType::boolean ? walk_condition(x, wanted, f, depth) : x);
  }
  return a_.with_args(atom, args);
}

// What decides a branch keeps its bits: what is replaced is exactly what a stored value is defined as. Operands are
// rewritten before users, and every node once, however many conditions it is part of.
Id Sharing::walk_condition(Id condition, Wanted& wanted, const Step& f, int depth) {
  if (!holds_below(condition, wanted, 0)) return condition;
  std::set<Id> met;
  std::vector<Id> args;
  for (Id x : newly_met(a_, condition, [&](Id id) { return !in_conditions_.contains(id) && met.insert(id).second; })) {
    Id now = is_compared(a_[x]) ? stored_instead(x, wanted, f, depth) : x;
    if (now == x) {
      args.clear();
      for (Id arg : a_[x].args()) args.push_back(arg == kNone ? kNone : in_conditions_.at(arg));
      now = a_.with_args(x, args);
    }
    in_conditions_[x] = now;
  }
  return in_conditions_.at(condition);
}

Id Sharing::stored_instead(Id x, Wanted& wanted, const Step& f, int depth) {
  Product now = walk(tree_.form(x), wanted, f, depth);
  const bool read = now.coefficient == 1 && now.factors.size() == 1 && now.factors[0].halves == 2 &&
                    a_[now.factors[0].atom].op == Op::read && same_bits_(now.factors[0].atom, x);
  return read ? now.factors[0].atom : x;
}

}  // namespace xhat
