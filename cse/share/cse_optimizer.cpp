#include "cse/share/cse_optimizer.h"

#include <algorithm>

#include "cse/algebra/accuracy.h"
#include "cse/algebra/reduction_algebra.h"
#include "cse/normalize/auto_inliner.h"
#include "cse/share/sharing.h"
#include "cse/share/stored_branches.h"
#include "expr/core/watch.h"

namespace xhat {
namespace {

constexpr int kMaxRounds = 3;           // of reading outputs
constexpr size_t kMaxProducts = 10000;  // compared on either side; larger ops share what comes first

// Products of which one is as good as the other.
std::vector<Id> identity(const Product& p, const std::vector<AxisRange>& scope) {
  std::vector<Id> all;
  for (const Factor& f : p.factors) all.insert(all.end(), {f.atom, static_cast<Id>(f.halves)});
  all.push_back(kNone);
  for (const AxisRange& r : scope) all.insert(all.end(), {r.axis, r.begin, r.end});
  return all;
}

class Optimizer {
 public:
  explicit Optimizer(const Program& p, const std::vector<TensorId>& dropped = {}, bool save_reads = false)
      : p_(p),
        a_(*p.arena),
        tree_(a_),
        sharing_(
            tree_, [this](Id read, Id value) { return same_bits(read, value); }, [this](TensorId t) { return kept_for_backward(t); },
            [this](const Product& before, const Product& after) { return keeps_digits(before, after); },
            [this](Id value) { return accuracy_.nonnegative(value); }, {dropped.begin(), dropped.end()}),
        accuracy_(p_, tree_),
        deciding_(feeds_control(p)),
        dropped_(dropped.begin(), dropped.end()),
        save_reads_(save_reads) {}

  Program reuse(const std::vector<TensorId>& stored);
  Program reuse_backward();
  // Maps of the forward that sums of the backward read, as they would compute them again and again: others read them too, where that is
  // cheaper. Those that are.
  std::vector<TensorId> reuse_maps(const std::vector<TensorId>& kept);
  // The next value to share, or none.
  std::optional<Share> next_share(const std::vector<TensorId>& kept, const std::set<Id>& refused);
  // Makes it a forward definition, which the backward reads where that is cheaper.
  TensorId take(const Share& best, std::set<Id>& refused);
  bool complete() const { return complete_; }
  int64_t compared() const { return compared_; }
  const Program& program() const { return p_; }
  TensorExprTree& tree() { return tree_; }
  // Another program over the same arena: what is known of expressions stays.
  void turn_to(const Program& p) {
    p_ = p;
    deciding_ = feeds_control(p);
    accuracy_.forget();
  }

 private:
  struct Forward {
    Definition definition;
    Pattern pattern;
    Product form;
    bool map;
  };
  void collect_forward(const std::vector<TensorId>& kept);
  void collect_parts(const Forward& f);
  std::vector<BackwardPart> backward_products();
  std::optional<Share> largest_share(const std::set<Id>& refused);
  void reuse_selects(const std::vector<StoredBranches>& branches);
  bool fold_everywhere(const std::vector<std::vector<StoredValue>>& values);
  using Step = std::function<Product(const Product&, std::span<const AxisRange>)>;
  void in_definition(Definition& d, Wanted& wanted, const Step& step);
  // The definition changed, if that loses no digits; then, where each of the changes inside loses none.
  bool with_digits(Definition& d, const std::function<void(Definition&)>& change);
  // Is the tensor defined as this very expression, at the indices read? Equal as reals is not enough.
  bool same_bits(Id read, Id value) {
    const Node n = a_[read];
    const Definition* d = p_.definition_of(n.symbol);
    if (!d || n.op != Op::read) return false;
    Replacements at;
    for (size_t i = 0; i < d->axes.size(); ++i) at[d->axes[i].axis] = a_.to(DType::i64, n.arg(i));
    return substitute(a_, d->body, at) == value;
  }
  bool keeps_digits(const Product& before, const Product& after) {
    if (before == after) return true;
    const Product& typed = before.is_number() ? after : before;
    DType type = a_[typed.factors[0].atom].type;
    return accuracy_.keeps(tree_.to_expression(before, type), tree_.to_expression(after, type));
  }
  // Would the backward's read of it be why it is kept?
  bool kept_for_backward(TensorId t) const {
    bool inside = p_.tensors[t].role == Role::defined && !has_tensor(p_.outputs, t);
    return save_reads_ || inside || dropped_.contains(t);
  }
  std::vector<StoredValue> forms_of(TensorId tensor, const std::vector<AxisRange>& free, const Product& form) {
    return stored_forms(tree_, p_.tensors[tensor].type, tensor, free, form);
  }
  Product as_written(const Share& best);
  TensorId define(const Share& share, std::vector<StoredValue>& forms);
  std::optional<TensorId> defined_already(const Share& best, std::vector<StoredValue>& forms);

  Program p_;
  Arena& a_;
  TensorExprTree tree_;
  Sharing sharing_;
  Accuracy accuracy_;
  std::set<TensorId> deciding_;  // stay as they are
  std::set<TensorId> dropped_;
  bool save_reads_;
  bool complete_ = true;  // no limit was met
  int64_t compared_ = 0;
  std::vector<Forward> forward_;
  std::map<TensorId, PointValue> values_;     // of the forward's maps that are not kept
  std::unordered_map<Id, Forward> patterns_;  // by body
  std::vector<ForwardPart> parts_;
  std::set<std::vector<Id>> met_;  // among parts_
};

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
    if (met_.insert(identity(p, scope)).second) parts_.push_back({p, scope, f.pattern.names, f.definition.target()});
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

void Optimizer::in_definition(Definition& d, Wanted& wanted, const Step& step) {
  const Node n = a_[d.body];
  if (!is_float(n.type)) return;
  std::vector<AxisRange> scope = d.axes;
  auto here = [&](const Product& p) { return step(p, scope); };
  if (!is_reduction(n.op)) {
    Product before = tree_.form(d.body), after = sharing_.everywhere(before, wanted, here);
    if (!(after == before)) d.body = tree_.to_expression(after, n.type);
  } else if (n.op == Op::sum) {
    for (const AxisRange& r : reduce_axes(n)) scope.push_back(r);
    sharing_.known = conjuncts(a_, reduce_condition(n));
    std::ranges::copy(ranges_as_conditions(a_, reduce_axes(n)), std::back_inserter(sharing_.known));
    Product before = tree_.form(reduce_body(n)), after = sharing_.everywhere(before, wanted, here);
    sharing_.known.clear();
    Id condition = sharing_.in_condition(reduce_condition(n), wanted, here);
    Id inside = after == before ? reduce_body(n) : tree_.to_expression(after, n.type);
    d.body = a_.reduce(n.op, reduce_axes(n), condition, inside);
  }
}

bool Optimizer::with_digits(Definition& d, const std::function<void(Definition&)>& change) {
  auto inside = [&](Id body) { return is_reduction(a_[body].op) ? reduce_body(a_[body]) : body; };
  for (bool each : {false, true}) {
    Definition changed = d;
    sharing_.with_all_digits = each;
    change(changed);
    if (changed.body == d.body) return false;
    if (!accuracy_.keeps(inside(d.body), inside(changed.body))) continue;
    d = std::move(changed);
    return true;
  }
  return false;
}

// values: per tensor, the forms it comes in.
bool Optimizer::fold_everywhere(const std::vector<std::vector<StoredValue>>& values) {
  bool changed = false;
  std::vector<StoredValue> all;
  for (const auto& forms : values) all.insert(all.end(), forms.begin(), forms.end());
  Wanted wanted = sharing_.wanted(all);
  for (Definition& d : p_.backward.definitions) {
    if (deciding_.contains(d.target())) continue;
    auto read_instead = [&](Definition& now) {
      in_definition(now, wanted, [&](const Product& p, std::span<const AxisRange> scope) {
        Product folded = p;
        for (const auto& forms : values) folded = sharing_.fold(p_, folded, forms, scope);
        return folded;
      });
    };
    changed |= with_digits(d, read_instead);
    // A sum reads maps that it would compute again and again; with them written out it may be found to read something else.
    if (a_[d.body].op != Op::sum) continue;
    Definition open = d;
    open.body = inline_reads(a_, d.body, values_, d.axes);
    if (open.body == d.body || !with_digits(open, read_instead)) continue;
    if (evaluation_cost_ps(a_, reduce_body(a_[open.body])) > evaluation_cost_ps(a_, reduce_body(a_[d.body]))) continue;
    d = std::move(open);
    changed = true;
  }
  return changed;
}

Program Optimizer::reuse(const std::vector<TensorId>& stored) {
  collect_forward({});
  std::vector<std::vector<StoredValue>> values;
  std::vector<StoredBranches> branches;
  for (const Forward& f : forward_) {
    TensorId t = f.definition.target();
    if (!f.map || !has_tensor(stored, t)) continue;
    values.push_back(forms_of(t, f.pattern.free, f.form));
    if (auto found = stored_branches(tree_, t, f.pattern.free, f.form)) branches.push_back(std::move(*found));
  }
  if (!branches.empty()) reuse_selects(branches);
  // What is left of s*(1-s) once its inner s is read may pay only then.
  for (int round = 0; round < kMaxRounds && fold_everywhere(values); ++round) {
  }
  return p_;
}

std::vector<TensorId> Optimizer::reuse_maps(const std::vector<TensorId>& kept) {
  collect_forward(kept);
  std::vector<TensorId> reused;
  for (const Forward& f : std::vector<Forward>(forward_)) {
    const TensorId t = f.definition.target();
    if (!f.map || has_tensor(kept, t) || !backward_reads(p_, t) || deciding_.contains(t)) continue;
    if (fold_everywhere({forms_of(t, f.pattern.free, f.form)})) reused.push_back(t);
  }
  return reused;
}

void Optimizer::reuse_selects(const std::vector<StoredBranches>& branches) {
  for (Definition& d : p_.backward.definitions) {
    const Node n = a_[d.body];
    bool sum = n.op == Op::sum;
    if (deciding_.contains(d.target()) || (is_reduction(n.op) && !sum)) continue;
    std::vector<AxisRange> scope = d.axes;
    if (sum)
      for (const AxisRange& r : reduce_axes(n)) scope.push_back(r);
    with_digits(d, [&](Definition& now) {
      Id body = reuse_branches(p_, tree_, sharing_, branches, dropped_, sum ? reduce_body(n) : d.body, scope);
      now.body = sum ? a_.reduce(Op::sum, reduce_axes(n), reduce_condition(n), body) : body;
    });
  }
}

Program Optimizer::reuse_backward() {
  std::map<TensorId, std::set<TensorId>> below;  // all that a backward definition depends on
  for (const Definition& d : p_.backward.definitions) {
    std::set<TensorId>& all = below[d.target()];
    for (TensorId t : tensors_read(a_, d.body)) {
      all.insert(t);
      if (auto it = below.find(t); it != below.end()) all.insert(it->second.begin(), it->second.end());
    }
  }
  for (size_t i = 0; i < p_.backward.definitions.size(); ++i) {
    const Definition source = p_.backward.definitions[i];
    if (is_reduction(a_[source.body].op) || !is_float(a_[source.body].type) || has_tensor(p_.gradients, source.target())) continue;
    Pattern pattern = pattern_of(a_, source);
    auto forms = forms_of(source.target(), pattern.free, tree_.form(pattern.body));
    if (forms.empty()) continue;
    forms.resize(1);  // the value itself
    Wanted wanted = sharing_.wanted(forms);
    for (Definition& d : p_.backward.definitions) {
      if (d.target() == source.target()) continue;
      if (deciding_.contains(d.target())) continue;
      if (below[source.target()].contains(d.target())) continue;
      bool changed = with_digits(d, [&](Definition& now) {
        in_definition(now, wanted, [&](const Product& p, std::span<const AxisRange> scope) { return sharing_.fold(p_, p, forms, scope); });
      });
      if (changed && has_tensor(tensors_read(a_, d.body), source.target())) below[d.target()].insert(source.target());
    }
  }
  return ordered(p_);
}

std::vector<BackwardPart> Optimizer::backward_products() {
  std::vector<BackwardPart> found;
  std::set<std::vector<Id>> met;
  for (const Definition& d : p_.backward.definitions) {
    const Node n = a_[d.body];
    bool sum = n.op == Op::sum;
    if (deciding_.contains(d.target()) || !is_float(n.type)) continue;
    if (is_reduction(n.op) && !sum) continue;
    std::vector<AxisRange> scope = d.axes;
    if (sum)
      for (const AxisRange& r : reduce_axes(n)) scope.push_back(r);
    auto add = [&](const Product& p) {
      if (p.is_number() || !met.insert(identity(p, scope)).second) return;
      if (found.size() < kMaxProducts)
        found.push_back(sharing_.backward_part(p, scope));
      else
        complete_ = false;
    };
    complete_ &= sharing_.each_product(tree_.form(sum ? reduce_body(n) : d.body), add);
    if (sum) complete_ &= sharing_.each_product_in_condition(reduce_condition(n), add);
  }
  return found;
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

// A difference comes in two signs. The one that the user wrote has the bits that a comparison of it needs.
Product Optimizer::as_written(const Share& best) {
  auto forward = std::ranges::find(forward_, best.of->definition, [](const Forward& f) { return f.definition.target(); });
  Product other = best.form;
  other.coefficient = -other.coefficient;
  DType type = a_[best.form.factors[0].atom].type;
  std::vector<Id> body = reachable(a_, forward->pattern.body);
  auto written = [&](const Product& p) { return std::ranges::binary_search(body, tree_.to_expression(p, type)); };
  return !written(best.form) && written(other) ? other : best.form;
}

TensorId Optimizer::define(const Share& share, std::vector<StoredValue>& forms) {
  Share best = share;
  best.form = as_written(share);
  DType type = a_[best.form.factors[0].atom].type;
  Definition d;
  Replacements own;
  std::vector<Id> shape;
  std::vector<AxisRange> free;
  for (size_t i = 0; i < best.of->scope.size(); ++i) {
    const AxisRange& r = best.of->scope[i];
    if (!std::ranges::binary_search(tree_.free_axes(best.form), r.axis)) continue;
    d.axes.push_back({best.of->names[i], r.begin, r.end});
    own[r.axis] = best.of->names[i];
    shape.push_back(r.end);
    free.push_back(r);
  }
  d.body = substitute(a_, tree_.to_expression(best.form, type), own);
  TensorId t = p_.add_tensor(p_.tensors[best.of->definition].name + "_part", type, shape);
  d.targets = {t};
  p_.forward.definitions.push_back(d);
  forms = forms_of(t, free, best.form);
  return t;
}

// Parts that may score highest first, until none left may score more. Of equals, what the first product of the backward has.
std::optional<Share> Optimizer::largest_share(const std::set<Id>& refused) {
  std::vector<BackwardPart> targets = backward_products();
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
  std::optional<Share> best;
  std::pair<size_t, size_t> best_at;
  for (auto [highest, at] : order) {
    if (best && highest < best->score) break;
    std::set<size_t> near;
    for (const Factor& f : parts_[at].form.factors)
      if (auto it = holding.find(tree_.shape(f.atom)); it != holding.end()) near.insert(it->second.begin(), it->second.end());
    for (size_t target : near) {
      ++compared_;
      auto found = sharing_.common(parts_[at], targets[target]);
      std::pair<size_t, size_t> here{target, at};
      if (!found || (best && (found->score < best->score || (found->score == best->score && here > best_at)))) continue;
      Id key = tree_.to_expression(found->form, a_[found->form.factors[0].atom].type);
      if (refused.contains(key)) continue;
      best = found;
      best_at = here;
    }
  }
  return best;
}

std::optional<Share> Optimizer::next_share(const std::vector<TensorId>& kept, const std::set<Id>& refused) {
  collect_forward(kept);
  parts_.clear();
  met_.clear();
  for (const Forward& f : forward_)
    if (!has_tensor(kept, f.definition.target()) || has_tensor(p_.outputs, f.definition.target())) collect_parts(f);
  return largest_share(refused);
}

TensorId Optimizer::take(const Share& best, std::set<Id>& refused) {
  refused.insert(tree_.to_expression(best.form, a_[best.form.factors[0].atom].type));
  std::vector<StoredValue> forms;
  auto tensor = defined_already(best, forms);
  if (!tensor) tensor = define(best, forms);
  fold_everywhere({forms});
  p_ = ordered(p_);
  return *tensor;
}

}  // namespace

Program reuse_stored(const Program& p, const std::vector<TensorId>& stored, const std::vector<TensorId>& dropped) {
  return simplify_reductions(Optimizer(p, dropped).reuse(stored), stored);
}

Program reuse_backward(const Program& p) { return Optimizer(ordered(p)).reuse_backward(); }

Shared share_largest(const Program& p, const std::vector<TensorId>& stored, const std::vector<TensorId>& dropped, bool save_reads) {
  Optimizer optimizer(p, dropped, save_reads);
  Program now = simplify_reductions(optimizer.reuse(stored), stored, optimizer.tree());
  optimizer.turn_to(now);
  std::vector<TensorId> kept = stored;
  std::set<Id> refused;
  std::optional<Share> best = optimizer.next_share(kept, refused);
  for (int i = 0; best && i < most_shares; ++i) {
    TensorId t = optimizer.take(*best, refused);
    if (backward_reads(optimizer.program(), t)) {
      kept.push_back(t);
      now = simplify_reductions(optimizer.program(), kept, optimizer.tree());
    }  // else matched, but no cheaper anywhere
    optimizer.turn_to(now);
    step_done("share", now);
    best = optimizer.next_share(kept, refused);
  }
  if (const auto maps = optimizer.reuse_maps(kept); !maps.empty()) {
    kept.insert(kept.end(), maps.begin(), maps.end());
    now = simplify_reductions(optimizer.program(), kept, optimizer.tree());
    step_done("share", now);
  }
  return {now, !best && optimizer.complete(), optimizer.compared()};
}

}  // namespace xhat
