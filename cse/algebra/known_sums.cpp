#include "cse/algebra/known_sums.h"

#include <algorithm>

#include "cse/algebra/solved_conditions.h"
#include "cse/normalize/auto_inliner.h"
#include "expr/core/machine_model.h"

namespace xhat {
namespace {

// The factors that do not depend on the bound axes, taken out of the body.
Product taken_out(const Arena& a, Product& body, std::span<const AxisRange> bound) {
  Product outside{1, {}}, inside{body.coefficient, {}};
  for (const Factor& f : body.factors) (depends_on_any(a, f.atom, bound) ? inside : outside).factors.push_back(f);
  body = std::move(inside);
  return outside;
}

}  // namespace

void KnownSums::remember(const Definition& d) {
  const Node n = a_[d.body];
  if (n.op != Op::sum || !is_float(n.type)) return;
  Pattern pattern = pattern_of(a_, d);
  Product body = tree_.form(pattern.body);
  solve_conditions(tree_, pattern.bound, pattern.condition, body, pattern.free);
  if (pattern.bound.empty()) return;
  Product outside = taken_out(a_, body, pattern.bound);
  if (body.is_number()) return;
  double coefficient = body.coefficient;
  body.coefficient = 1;
  Nested flat = opened(body, pattern.bound, "$f");
  flat.outside = tree_.multiply(flat.outside, outside);
  const size_t place = sums_.size();
  by_shape_[shape_of(body)].push_back(place);
  by_flat_shape_[shape_of(flat.body)].push_back(place);
  for (const Factor& f : body.factors)
    if (Places& places = by_factor_[tree_.shape(f.atom)]; places.empty() || places.back() != place) places.push_back(place);
  by_tensor_.try_emplace(d.target(), place);
  sums_.push_back({d.target(), std::move(pattern), coefficient, std::move(body), std::move(outside), std::move(flat)});
}

void KnownSums::rename_last(TensorId from, TensorId to, double times) {
  if (sums_.empty() || sums_.back().tensor != from) return;
  sums_.back().tensor = to;
  sums_.back().coefficient *= times;
  by_tensor_.erase(from);
  by_tensor_.try_emplace(to, sums_.size() - 1);
}

std::span<const size_t> KnownSums::of_shape_of(const ByShape& places, const Product& body) {
  auto it = places.find(shape_of(body));
  return it == places.end() ? std::span<const size_t>() : it->second;
}

KnownSums::Places KnownSums::with_a_factor_of(const Product& body) {
  Places all;
  for (const Factor& f : body.factors)
    if (auto it = by_factor_.find(tree_.shape(f.atom)); it != by_factor_.end()) all.insert(all.end(), it->second.begin(), it->second.end());
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  return all;
}

// Opens the sums that are factors, under bound axes of their own (named by mark, so that patterns and
// targets differ).
Nested KnownSums::opened(const Product& body, const std::vector<AxisRange>& bound, const std::string& mark) {
  constexpr int kRounds = 3;
  Nested flat{body, bound};
  for (int depth = 0; depth < kRounds; ++depth) {
    Product next{flat.body.coefficient, {}};
    bool changed = false;
    for (const Factor& f : flat.body.factors) {
      const Node n = a_[f.atom];
      auto at_place = n.op == Op::read && f.halves == 2 && !changed ? by_tensor_.find(n.symbol) : by_tensor_.end();
      const KnownSum* k = at_place == by_tensor_.end() ? nullptr : &sums_[at_place->second];
      if (!k || !is_true(a_, k->pattern.condition)) {
        next = tree_.multiply(next, {1, {f}});
        continue;
      }
      changed = true;
      Replacements at;
      for (size_t i = 0; i < k->pattern.free.size(); ++i) at[k->pattern.free[i].axis] = a_.to(DType::i64, n.arg(i));
      for (const AxisRange& r : k->pattern.bound) {
        Id axis = a_.axis(mark + std::to_string(flat.bound.size()));
        flat.bound.push_back({axis, substitute(a_, r.begin, at), substitute(a_, r.end, at)});
        at[r.axis] = axis;
      }
      Product inner = tree_.form(substitute(a_, tree_.to_expression(k->body, n.type), at));
      Product outside = tree_.form(substitute(a_, tree_.to_expression(k->outside, n.type), at));
      next = tree_.multiply(tree_.multiply(next, outside), tree_.multiply({k->coefficient, {}}, inner));
    }
    if (!changed) break;
    flat.body = next;
  }
  flat.outside = taken_out(a_, flat.body, flat.bound);
  return flat;
}

std::optional<Product> KnownSums::known(const Product& body, const Sum& s) {
  for (size_t place : of_shape_of(by_shape_, body)) {
    const KnownSum& k = sums_[place];
    if (auto v = matched(k, {k.body, k.pattern.bound, k.outside}, {body, s.bound}, s)) return v;
  }
  // Once more with all sums written as one: the order of summation does not matter.
  if (!is_true(a_, s.condition)) return std::nullopt;
  Nested flat = opened(body, s.bound, "$t");
  for (size_t place : of_shape_of(by_flat_shape_, flat.body)) {
    const KnownSum& k = sums_[place];
    if (flat.bound.size() == s.bound.size() && k.flat.bound.size() == k.pattern.bound.size()) continue;
    if (auto v = matched(k, k.flat, flat, s)) return v;
  }
  return std::nullopt;
}

std::optional<Product> KnownSums::matched(const KnownSum& k, const Nested& pattern, const Nested& target, const Sum& s) {
  if (pattern.bound.size() != target.bound.size() || pattern.body.factors.size() != target.body.factors.size()) return std::nullopt;
  if (p_.tensors[k.tensor].type != s.type) return std::nullopt;
  std::set<Id> axes = k.pattern.axes();
  for (const AxisRange& r : pattern.bound) axes.insert(r.axis);
  Unifier unifier(tree_, axes);
  const bool may_turn = std::ranges::any_of(pattern.body.factors, [&](const Factor& f) {
    return f.halves % 4 != 0 && (tree_.terms(f.atom) || info(a_[f.atom].op).parity == Parity::odd);
  });
  for (bool turned : {false, true}) {
    if (turned && !may_turn) break;
    for (const Binding& alike : unifier.products(pattern.body, target.body, turned)) {
      const Binding found = with_ranges(k, pattern.bound, alike, target.bound);
      const auto indices = indices_of(k, pattern.bound, found, target.bound, s);
      if (!indices) continue;
      const Replacements at(found.begin(), found.end());
      auto now = [&](const Product& p) { return tree_.form(substitute(a_, tree_.to_expression(p, s.type), at)); };
      Product value = tree_.form(read_at(a_, p_, k.tensor, *indices));
      value.coefficient *= target.body.coefficient / (pattern.body.coefficient * k.coefficient);
      if (turned) {
        // sum(i: x[i] - x[j]) is -sum(i: x[j] - x[i]).
        const Product instance = now({1, pattern.body.factors});
        if (instance.factors != target.body.factors) continue;
        value.coefficient *= instance.coefficient;
      }
      if (auto divided = over(tree_.multiply(value, target.outside), now(pattern.outside))) return divided;
    }
  }
  return std::nullopt;
}

// What is summed may not have all axes of the sum: that t of s[n,t] = sum(k in 0..t+1: x[n,k]) is t, only the ends of ranges say.
Binding KnownSums::with_ranges(const KnownSum& k, std::span<const AxisRange> pattern_bound, Binding found,
                               std::span<const AxisRange> bound) {
  if (std::ranges::all_of(k.pattern.free, [&](const AxisRange& r) { return found.contains(r.axis); })) return found;
  Unifier unifier(tree_, k.pattern.axes());
  for (const AxisRange& r : pattern_bound) {
    auto it = found.find(r.axis);
    auto to = it == found.end() ? bound.end() : std::ranges::find(bound, it->second, &AxisRange::axis);
    if (to == bound.end()) continue;
    // Whether both ends are equal is asked afterwards: 0 says no t, but t+1 does.
    for (auto ends : {std::pair(r.begin, to->begin), std::pair(r.end, to->end)})
      if (auto more = unifier.indices(std::span(&ends, 1), found)) found = std::move(*more);
  }
  return found;
}

// Where the known sum is read, if it goes over the same axes; else none.
std::optional<std::vector<Id>> KnownSums::indices_of(const KnownSum& k, std::span<const AxisRange> pattern_bound, const Binding& found,
                                                     std::span<const AxisRange> bound, const Sum& s) {
  const Replacements at(found.begin(), found.end());
  auto now = [&](Id id) { return substitute(a_, id, at); };
  std::vector<Id> left = axes_of(bound);
  bool fits = now(k.pattern.condition) == s.condition;
  for (const AxisRange& r : pattern_bound) {
    auto it = found.find(r.axis);
    auto to = it == found.end() ? bound.end() : std::ranges::find(bound, it->second, &AxisRange::axis);
    fits = fits && to != bound.end() && now(r.begin) == to->begin && now(r.end) == to->end;
    if (fits) std::erase(left, to->axis);
  }
  std::vector<Id> indices;
  for (const AxisRange& r : k.pattern.free) {
    auto it = found.find(r.axis);
    fits = fits && it != found.end() && !depends_on_any(a_, it->second, bound);
    if (fits) indices.push_back(tidy_index(a_, it->second));
  }
  if (!fits || !left.empty() || !covers(a_, k.pattern.free, found, s.scope)) return std::nullopt;
  return indices;
}

std::vector<std::pair<Product, Product>> KnownSums::alike(const Product& body, const Sum& s) {
  std::vector<std::pair<Product, Product>> all;
  for (size_t place : with_a_factor_of(body)) {
    const KnownSum& k = sums_[place];
    if (p_.tensors[k.tensor].type != s.type || !k.outside.factors.empty()) continue;
    for (const Factor& f : k.body.factors)
      for (const Factor& g : body.factors) {
        if (tree_.shape(f.atom) != tree_.shape(g.atom) || !tree_.terms(f.atom)) continue;
        const auto found = Unifier(tree_, k.pattern.axes()).atoms(f.atom, g.atom);
        const auto indices = found ? indices_of(k, k.pattern.bound, *found, s.bound, s) : std::nullopt;
        if (!indices) continue;
        Product value = tree_.form(read_at(a_, p_, k.tensor, *indices));
        value.coefficient /= k.coefficient;
        const Replacements at(found->begin(), found->end());
        all.emplace_back(tree_.form(substitute(a_, tree_.to_expression(k.body, s.type), at)), value);
      }
  }
  return all;
}

std::vector<std::pair<Product, Sum>> KnownSums::inner_sums(const Product& body, const Sum& s) {
  std::vector<std::pair<Product, Sum>> all;
  auto is_sum = [&](const Factor& f) { return a_[f.atom].op == Op::read && f.halves == 2 && by_tensor_.contains(a_[f.atom].symbol); };
  const bool reads_sums = std::ranges::any_of(body.factors, is_sum);
  if (!is_true(a_, s.condition) || (s.bound.size() < 2 && !reads_sums)) return all;
  const Nested open = reads_sums ? opened(body, s.bound, "$t") : Nested{body, s.bound};
  for (const AxisRange& r : open.bound) {
    auto uses = [&](Id id) { return depends_on_any(a_, id, std::span(&r, 1)); };
    Sum one = s;
    one.bound = {r};
    for (const AxisRange& other : open.bound)
      if (other.axis != r.axis) one.scope.push_back(other);
    if (one.scope.size() == s.scope.size() ||
        std::ranges::any_of(open.bound, [&](const AxisRange& o) { return uses(o.begin) || uses(o.end); }))
      continue;
    Product factors{1, open.body.factors};
    std::erase_if(factors.factors, [&](const Factor& f) { return !uses(f.atom); });
    // Without a difference it is not zero.
    const bool all_of_them = factors.factors.size() == open.body.factors.size() && open.bound.size() == s.bound.size();
    const bool differs = std::ranges::any_of(factors.factors, [&](const Factor& f) { return tree_.terms(f.atom) != nullptr; });
    if (differs && !all_of_them) all.emplace_back(std::move(factors), std::move(one));
  }
  return all;
}

// No division that was not there: what it divides by may be 0.
std::optional<Product> KnownSums::over(const Product& value, const Product& outside) {
  Product quotient = tree_.multiply(value, tree_.power(outside, -2));
  for (const Factor& f : quotient.factors)
    if (f.halves < 0 && std::ranges::none_of(value.factors, [&](const Factor& g) { return g.atom == f.atom && g.halves <= f.halves; }))
      return std::nullopt;
  return quotient;
}

// Of the axes of a sum, those that the known one in it goes over, and what is left: some.
std::optional<KnownSums::Apart> KnownSums::without_bound(const KnownSum& k, const Binding& found, const std::vector<AxisRange>& bound) {
  Replacements at(found.begin(), found.end());
  Apart apart{{}, bound};
  for (const AxisRange& r : k.pattern.bound) {
    auto it = found.find(r.axis);
    auto to = it == found.end() ? apart.stay.end() : std::ranges::find(apart.stay, it->second, &AxisRange::axis);
    if (to == apart.stay.end() || substitute(a_, r.begin, at) != to->begin || substitute(a_, r.end, at) != to->end) return std::nullopt;
    apart.gone.push_back(*to);
    apart.stay.erase(to);
  }
  if (apart.stay.empty()) return std::nullopt;
  return apart;
}

std::optional<std::pair<Product, Sum>> KnownSums::in_parts(const Product& body, const Sum& s) {
  if (!is_true(a_, s.condition)) return std::nullopt;
  for (size_t place : with_a_factor_of(body)) {
    const KnownSum& k = sums_[place];
    if (k.pattern.bound.size() >= s.bound.size() || k.body.factors.size() > body.factors.size()) continue;
    if (p_.tensors[k.tensor].type != s.type || !is_true(a_, k.pattern.condition)) continue;
    for (const Binding& alike : Unifier(tree_, k.pattern.axes()).contained(k.body.factors, body.factors, {}, true)) {
      const Binding found = with_ranges(k, k.pattern.bound, alike, s.bound);
      Replacements at(found.begin(), found.end());
      auto left = without_bound(k, found, s.bound);
      if (!left) continue;
      auto goes = [&](Id id) { return depends_on_any(a_, id, left->gone); };
      Product inner = tree_.form(substitute(a_, tree_.to_expression(k.body, s.type), at));
      Product rest = tree_.multiply(body, tree_.power(inner, -2));
      std::vector<AxisRange> scope = s.scope;
      scope.insert(scope.end(), left->stay.begin(), left->stay.end());
      bool fits = covers(a_, k.pattern.free, found, scope);
      fits = fits && std::ranges::none_of(rest.factors, [&](const Factor& f) { return goes(f.atom); });
      fits = fits && std::ranges::none_of(left->stay, [&](const AxisRange& r) { return goes(r.begin) || goes(r.end); });
      std::vector<Id> indices;
      for (const AxisRange& r : k.pattern.free) {
        auto it = found.find(r.axis);
        fits = fits && it != found.end() && !goes(it->second);
        if (fits) indices.push_back(tidy_index(a_, it->second));
      }
      if (!fits) continue;
      Sum parts = s;
      parts.bound = left->stay;
      auto value = over(tree_.multiply(rest, tree_.form(read_at(a_, p_, k.tensor, indices))),
                        tree_.form(substitute(a_, tree_.to_expression(k.outside, s.type), at)));
      if (!value) continue;
      value->coefficient /= k.coefficient;
      return {{*value, parts}};
    }
  }
  return std::nullopt;
}

// sum(j: p[i,j]*dp[i,j]) with dp[i,j] = sum(d: do[i,d]*v[j,d]) and an output o[i,d] = sum(j: p[i,j]*v[j,d]) is
// sum(d: do[i,d]*o[i,d]): as many sums, which can be computed before dp. Which of the two has more terms is not known here, so the
// sum is replaced only if its terms take work beside reading them (p is an exp).
std::optional<std::pair<Product, Sum>> KnownSums::regrouped(const Product& body, const Sum& s) {
  if (!is_true(a_, s.condition)) return std::nullopt;
  if (evaluation_cost_ps(a_, tree_.to_expression(body, s.type)) <= kCheap_ps) return std::nullopt;
  Nested flat = opened(body, s.bound, "$t");
  if (flat.bound.size() == s.bound.size()) return std::nullopt;
  for (size_t place : with_a_factor_of(flat.body)) {
    const KnownSum& k = sums_[place];
    if (!has_tensor(p_.outputs, k.tensor) || p_.tensors[k.tensor].type != s.type) continue;
    if (!is_true(a_, k.pattern.condition)) continue;
    // What the output's sum goes over must be there; what it is only multiplied by (1/s of p = e/s) is divided out.
    Product outer = tree_.multiply({k.coefficient, {}}, k.outside);
    for (const Binding& found : Unifier(tree_, k.pattern.axes()).contained(k.body.factors, flat.body.factors))
      if (auto made = regrouped_by(k, with_ranges(k, k.pattern.bound, found, flat.bound), flat, outer, s)) return made;
  }
  return std::nullopt;
}

std::optional<std::pair<Product, Sum>> KnownSums::regrouped_by(const KnownSum& k, const Binding& found, const Nested& flat,
                                                               const Product& outer, const Sum& s) {
  Replacements at(found.begin(), found.end());
  auto now = [&](Id id) { return substitute(a_, id, at); };
  // The axes that the output's own sum goes over leave, and take with them all that depends on them.
  auto apart = without_bound(k, found, flat.bound);
  if (!apart) return std::nullopt;
  const auto& [gone, left] = *apart;
  Product inner = tree_.form(now(tree_.to_expression(k.body, s.type)));
  Product rest = tree_.multiply(flat.body, tree_.power(inner, -2));
  auto goes = [&](Id id) { return depends_on_any(a_, id, gone); };
  if (std::ranges::any_of(rest.factors, [&](const Factor& f) { return goes(f.atom); })) return std::nullopt;
  if (std::ranges::any_of(left, [&](const AxisRange& r) { return goes(r.begin) || goes(r.end); })) return std::nullopt;
  // What is left of the axes gets the names that the output has for them.
  std::vector<Id> indices, avoid = axes_of(s.scope), names = axes_of(p_.definition_of(k.tensor)->axes);
  Replacements named;
  for (size_t i = 0; i < k.pattern.free.size(); ++i) {
    auto it = found.find(k.pattern.free[i].axis);
    if (it == found.end() || goes(it->second)) return std::nullopt;
    indices.push_back(tidy_index(a_, it->second));
    if (std::ranges::find(left, indices.back(), &AxisRange::axis) == left.end()) continue;
    avoid.push_back(named[indices.back()] = a_.fresh_axis(names[i], avoid));
  }
  std::vector<AxisRange> scope = s.scope;
  scope.insert(scope.end(), left.begin(), left.end());
  if (named.size() != left.size() || !covers(a_, k.pattern.free, found, scope)) return std::nullopt;
  Sum regrouped = s;
  regrouped.bound = left;
  for (AxisRange& r : regrouped.bound) r.axis = named.at(r.axis);
  auto divided = over(tree_.multiply(flat.outside, rest), tree_.form(now(tree_.to_expression(outer, s.type))));
  if (!divided) return std::nullopt;
  Product value = *divided;
  value = tree_.multiply(value, tree_.form(read_at(a_, p_, k.tensor, indices)));
  return {{tree_.form(substitute(a_, tree_.to_expression(value, s.type), named)), regrouped}};
}

}  // namespace xhat
