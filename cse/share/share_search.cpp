#include <algorithm>
#include <queue>

#include "cse/share/optimizer.h"

namespace xhat {
namespace {

constexpr double kSameSize = 0.5;       // as the largest share of a round: others may wait
constexpr size_t kMaxProducts = 10000;  // compared on either side; larger ops share what comes first

// Products of which one is as good as the other.
std::vector<Id> identity(const Product& p, const std::vector<AxisRange>& scope) {
  std::vector<Id> all;
  for (const Factor& f : p.factors) all.insert(all.end(), {f.atom, static_cast<Id>(f.halves)});
  all.push_back(kNone);
  for (const AxisRange& r : scope) all.insert(all.end(), {r.axis, r.begin, r.end});
  return all;
}

}  // namespace

uint32_t Optimizer::number_of(const Product& p, const std::vector<AxisRange>& scope) {
  return numbers_.try_emplace(identity(p, scope), static_cast<uint32_t>(numbers_.size())).first->second;
}

// Forward bodies with maps written out, so that they are compared in terms of the same atoms as the
// backward's. Kept ones are read by the backward, and so by these.
void Optimizer::collect_forward(const std::vector<TensorId>& kept) {
  forward_.clear();
  const Uses uses(p_);
  std::map<TensorId, PointValue> values;
  std::set<TensorId> pinned;
  for (const Definition& d : p_.definitions())
    for (Id id : reachable(a_, d.body))
      if (a_[id].op == Op::read_or) pinned.insert(a_[id].symbol);
  for (const Definition& d : p_.forward.definitions) {
    if (!is_float(a_[d.body].type)) continue;
    Definition open = d;
    open.body = inline_reads(a_, d.body, values, d.axes);
    bool map = !is_reduction(a_[d.body].op);
    if (map && !has_tensor(kept, d.target()) && !pinned.contains(d.target()) && !stays_written(a_, uses, d))
      values[d.target()] = {axes_of(d.axes), open.body};
    // Most of them are as in the round before.
    auto known = patterns_.find(open.body);
    if (known == patterns_.end() || known->second.definition.axes != open.axes) {
      Forward f{open, pattern_of(a_, open), {}, map};
      f.form = tree_.form(f.pattern.body);
      known = patterns_.insert_or_assign(open.body, std::move(f)).first;
    }
    known->second.definition = open;
    forward_.push_back(known->second);
  }
  values_ = std::move(values);
}

void Optimizer::collect_parts(const Forward& f) {
  if (f.pattern.condition != kNone && !is_true(a_, f.pattern.condition)) return;
  std::vector<AxisRange> scope = f.pattern.free;
  scope.insert(scope.end(), f.pattern.bound.begin(), f.pattern.bound.end());
  std::vector<Product> open = {f.form};
  std::set<Id> seen;
  for (size_t i = 0; i < open.size(); ++i) {
    if (parts_.size() == kMaxProducts) {
      complete_ = false;
      return;
    }
    Product p = open[i];
    if (p.is_number()) continue;
    const uint32_t number = number_of(p, scope);
    if (met_.insert(number).second) parts_.push_back({p, scope, f.pattern.names, f.definition.target(), number});
    for (const Factor& factor : p.factors) {
      if (!seen.insert(factor.atom).second) continue;
      if (const auto* terms = tree_.terms(factor.atom)) {
        open.insert(open.end(), terms->begin(), terms->end());
        continue;
      }
      if (const Product* product = tree_.factors(factor.atom)) {
        open.push_back(*product);
        continue;
      }
      // Not under a select: what a condition guards may not be evaluated everywhere. What it compares itself may, and may
      // save the read of an input that the caller drops.
      const Node n = a_[factor.atom];
      if (is_read(n.op) || is_reduction(n.op)) continue;
      if (n.op == Op::select) {
        const Node asked = a_[n.arg(0)];
        if ((dropped_.empty() && !save_reads_) || info(asked.op).type != TypeRule::compare) continue;
        for (Id x : asked.args())
          if (is_float(a_[x].type)) open.push_back(tree_.form(x));
        continue;
      }
      for (Id x : n.args())
        if (is_float(a_[x].type)) open.push_back(tree_.form(x));
    }
  }
}

std::vector<BackwardPart> Optimizer::backward_products() {
  std::vector<BackwardPart> found;
  std::map<uint32_t, size_t> met;
  for (const Definition& d : p_.backward.definitions) {
    const Node n = a_[d.body];
    bool sum = n.op == Op::sum;
    if (deciding_.contains(d.target()) || !is_float(n.type)) continue;
    if (is_reduction(n.op) && !sum) continue;
    std::vector<AxisRange> scope = d.axes;
    if (sum)
      for (const AxisRange& r : reduce_axes(n)) scope.push_back(r);
    auto add = [&](const Product& p) {
      if (p.is_number()) return;
      auto [it, fresh] = met.emplace(number_of(p, scope), found.size());
      if (fresh && found.size() == kMaxProducts) {
        met.erase(it);
        complete_ = false;
        return;
      }
      if (fresh) {
        found.push_back(sharing_.backward_part(p, scope));
        found.back().number = it->first;
      }
      if (auto& in = found[it->second].definitions; in.empty() || in.back() != d.target()) in.push_back(d.target());
    };
    complete_ &= each_product_of(d, add);
  }
  return found;
}

bool Optimizer::each_product_of(const Definition& d, const Sharing::Look& look) {
  const Node n = a_[d.body];
  if (!is_float(n.type) || (is_reduction(n.op) && n.op != Op::sum)) return true;
  const bool sum = n.op == Op::sum;
  const bool all = sharing_.each_product(tree_.form(sum ? reduce_body(n) : d.body), look);
  return !sum ? all : sharing_.each_product_in_condition(reduce_condition(n), look) && all;
}

// A definition of exactly this value, if the user wrote one.
std::optional<TensorId> Optimizer::defined_already(const Share& best, std::vector<StoredValue>& forms) {
  for (const Forward& f : forward_) {
    if (!f.map) continue;
    if (!negligible(f.form.coefficient - best.form.coefficient, 1)) continue;
    Unifier unifier(tree_, f.pattern.axes());
    // The pattern's own names are shared between patterns: compare with another set of them.
    Replacements apart;
    std::vector<AxisRange> scope = best.of->scope;
    for (AxisRange& r : scope) {
      Id other = a_.axis(a_.name(r.axis) + "$");
      apart[r.axis] = other;
      r.axis = other;
    }
    DType type = a_[best.form.factors[0].atom].type;
    Product target = tree_.form(substitute(a_, tree_.to_expression(best.form, type), apart));
    for (const Binding& b : unifier.products(f.form, target)) {
      if (!covers(a_, f.pattern.free, b, scope) || b.size() != tree_.free_axes(target).size()) continue;
      forms = forms_of(f.definition.target(), f.pattern.free, f.form);
      return f.definition.target();
    }
  }
  return std::nullopt;
}

// As the forward says it: a difference comes in two signs, a sum in many orders. What was written has the bits that a comparison of it needs,
// and is computed anyway. But not where it names an axis that its value does not depend on, as in `if i == i then …`.
std::pair<Product, Id> Optimizer::as_written(const Share& best) {
  auto forward = std::ranges::find(forward_, best.of->definition, [](const Forward& f) { return f.definition.target(); });
  const DType type = a_[best.form.factors[0].atom].type;
  for (double sign : {1.0, -1.0}) {
    const Product form{sign * best.form.coefficient, best.form.factors};
    for (Id id : reachable(a_, forward->pattern.body))
      if (a_[id].type == type && tree_.known_form(id) == form && std::ranges::includes(tree_.free_axes(form), a_[id].free_axes()))
        return {form, id};
  }
  return {best.form, tree_.to_expression(best.form, type)};
}

TensorId Optimizer::define(const Share& best, std::vector<StoredValue>& forms) {
  const auto [form, written] = as_written(best);
  const DType type = a_[written].type;
  Definition d;
  Replacements own;
  std::vector<Id> shape;
  std::vector<AxisRange> free;
  for (size_t i = 0; i < best.of->scope.size(); ++i) {
    const AxisRange& r = best.of->scope[i];
    if (!std::ranges::binary_search(tree_.free_axes(form), r.axis)) continue;
    d.axes.push_back({best.of->names[i], r.begin, r.end});
    own[r.axis] = best.of->names[i];
    shape.push_back(r.end);
    free.push_back(r);
  }
  d.body = substitute(a_, written, own);
  TensorId t = p_.add_tensor(p_.tensors[best.of->definition].name + "_part", type, shape);
  d.targets = {t};
  p_.forward.definitions.push_back(d);
  forms = forms_of(t, free, form);
  return t;
}

// Looks at the parts of the forward that may score highest first, and takes what it finds in that order; of equals, what the first product of
// the backward has. A round takes, beside the largest, what is about as large and stands between other definitions of both directions, as what
// one changes is not what another was found in.
std::vector<TensorId> Optimizer::next_shares(const std::vector<TensorId>& kept, std::set<Id>& refused) {
  collect_forward(kept);
  parts_.clear();
  met_.clear();
  for (const Forward& f : forward_)
    if (!has_tensor(kept, f.definition.target()) || has_tensor(p_.outputs, f.definition.target())) collect_parts(f);
  const std::vector<BackwardPart> targets = backward_products();
  std::unordered_map<uint64_t, std::vector<size_t>> holding;  // a factor of that shape
  for (size_t i = 0; i < targets.size(); ++i)
    for (auto [shape, unused] : targets[i].by_shape)
      if (auto& list = holding[shape]; list.empty() || list.back() != i) list.push_back(i);
  bool roots = std::ranges::any_of(targets, [](const BackwardPart& t) {
    return std::ranges::any_of(t.form.factors, [](const Factor& f) { return f.halves % 2 != 0; });
  });
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < parts_.size(); ++i) order.push_back({sharing_.highest_score(parts_[i], roots), i});
  std::ranges::sort(order, [](const auto& x, const auto& y) { return x.first != y.first ? x.first > y.first : x.second < y.second; });
  // Definitions that have a share of this round: what else they have waits for the next one.
  std::set<TensorId> sharing;
  auto waits = [&](const BackwardPart& t) { return std::ranges::any_of(t.definitions, [&](TensorId d) { return sharing.contains(d); }); };
  struct Found {
    Share share;
    size_t target, part;
    bool operator<(const Found& o) const {
      return share.score != o.share.score ? share.score < o.share.score : std::pair(target, part) > std::pair(o.target, o.part);
    }
  };
  std::priority_queue<Found> found;
  std::vector<TensorId> taken;
  std::vector<std::vector<StoredValue>> values;
  double least = 0;
  auto take_above = [&](double highest) {
    for (; !found.empty() && found.top().share.score > highest; found.pop()) {
      const Found& best = found.top();
      if (sharing.contains(best.share.of->definition) || waits(targets[best.target])) continue;
      if (!refused.insert(key_of(best.share)).second) continue;
      sharing.insert(best.share.of->definition);
      sharing.insert(targets[best.target].definitions.begin(), targets[best.target].definitions.end());
      std::vector<StoredValue>& forms = values.emplace_back();
      if (taken.empty()) least = kSameSize * best.share.score;
      const auto tensor = defined_already(best.share, forms);
      taken.push_back(tensor ? *tensor : define(best.share, forms));
    }
  };
  for (auto [highest, at] : order) {
    take_above(highest);
    if (highest < least) break;
    if (sharing.contains(parts_[at].definition)) continue;
    std::set<size_t> near;
    for (const Factor& f : parts_[at].form.factors)
      if (auto it = holding.find(tree_.shape(f.atom)); it != holding.end()) near.insert(it->second.begin(), it->second.end());
    for (size_t target : near) {
      if (waits(targets[target]) || sharing_.highest_score(parts_[at], targets[target]) < least) continue;
      if (auto share = common(parts_[at], targets[target]); share && !refused.contains(key_of(*share))) found.push({*share, target, at});
    }
  }
  take_above(least);
  fold_everywhere(values);
  p_ = ordered(p_);
  return taken;
}

}  // namespace xhat
