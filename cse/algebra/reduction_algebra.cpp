#include "cse/algebra/reduction_algebra.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ad/common/guards.h"
#include "cse/algebra/accuracy.h"
#include "cse/algebra/known_sums.h"
#include "cse/algebra/solved_conditions.h"
#include "cse/match/bodies.h"
#include "cse/normalize/auto_inliner.h"
#include "expr/core/machine_model.h"
#include "expr/index/affine.h"

namespace xhat {
namespace {

constexpr size_t kMaxTerms = 32;  // of a product multiplied out for a proof
constexpr int kMaxSplits = 8;     // nested splits of one sum; each makes it smaller, this is a belt
constexpr int kMaxInner = 2;      // splits of a sum within whose terms zeros are looked for
constexpr size_t kMaxOpen = 96;   // terms of a definition multiplied out for a proof about all of them: a gradient's of a gradient has 40

class Simplifier {
 public:
  Simplifier(const Program& p, TensorExprTree& tree, const std::vector<TensorId>& kept, const std::vector<TensorId>& hidden)
      : p_(p), a_(*p.arena), tree_(tree), kept_(kept), hidden_(hidden), sums_(p_, tree_), accuracy_(p_, tree_) {}
  Program run();
  // Multiplied out, all sums are of one term each; opaque ones stay as they are.
  void multiply_out(std::set<TensorId> opaque) { multiplied_out_ = true, opaque_ = std::move(opaque); }
  const std::set<TensorId>& zeros() const { return zeros_; }
  const std::map<TensorId, PointValue>& terms_of_forward() const { return terms_of_forward_; }
  const std::set<Id>& zero_sums() const { return zero_sums_; }

 private:
  Product multiplied_out(const Product& value, DType type);
  void note_zero_sums(const Definition& d);
  void backward(Definition d);
  Product total(Product body, Sum s, bool create, int splits);
  bool safe_outside(Id factor, const Sum& s);
  std::optional<Product> split(const Product& body, const Sum& s, bool create, int splits);
  std::optional<Product> split_product(const Product& body, const Sum& s, bool create, int splits);
  std::optional<Product> with_rest(std::vector<Product> known, const std::vector<Product>& rest, const Sum& s, bool create, int splits);
  std::optional<Product> but_for_zeros(const Product& body, const Sum& s, int splits);
  bool like_signs(const std::vector<Product>& terms, DType type);
  bool all_rounded(const std::vector<Product>& terms, const Sum& s);
  std::optional<Product> proved(const Product& body, const Sum& s, int splits);
  Product under_guard(const Product& value, DType type);
  Id taken_out(const Product& body, Sum& s);
  Product create_sum(const Product& body, const Sum& s);
  bool single_term(const Product& value);
  bool reads_forward_only(Id expression) const;
  std::map<TensorId, PointValue> inlinable(const Definition& d);

  Program p_;
  Arena& a_;
  TensorExprTree& tree_;
  const std::vector<TensorId>& kept_;
  const std::vector<TensorId>& hidden_;
  KnownSums sums_;
  KnownIndices indices_{p_};
  Accuracy accuracy_;
  const Uses uses_{p_};
  std::map<TensorId, PointValue> values_;
  std::map<TensorId, PointValue> guards_;       // of backward maps that stay: where they are not 0
  std::set<TensorId> deciding_;                 // keep their bits
  std::set<TensorId> pinned_;                   // read with a value outside: stay definitions
  std::map<TensorId, Definition> written_out_;  // backward values that so far have no definition
  std::map<TensorId, std::string> renamed_;     // the names of sums that may go
  std::vector<Definition> done_;                // of the backward
  bool multiplied_out_ = false;
  std::set<TensorId> opaque_;
  std::set<TensorId> zeros_;  // of the backward: proved to be zero
  std::map<TensorId, PointValue> terms_of_forward_;
  std::set<Id> zero_sums_;
};

// Zero, or one product of atoms that are no sums.
bool Simplifier::single_term(const Product& value) {
  if (value.is_zero()) return true;
  auto terms = tree_.expand(value, kMaxTerms);
  return terms && terms->size() <= 1;
}

bool Simplifier::reads_forward_only(Id expression) const {
  return std::ranges::all_of(tensors_read(a_, expression),
                             [&](TensorId t) { return p_.forward.definition_of(t) || has_tensor(p_.inputs, t); });
}

// a*(if c then b else 0) as if c then a*b else 0, so that equal products are equal.
Product Simplifier::under_guard(const Product& value, DType type) {
  for (const Factor& f : value.factors) {
    const Node n = a_[f.atom];
    if (n.op != Op::select || f.halves != 2 || !is_constant(a_, n.arg(2), 0)) continue;
    Product inside{1, value.factors};
    std::erase(inside.factors, f);
    if (inside.is_number()) return value;
    inside = tree_.multiply(inside, tree_.form(n.arg(1)));
    const double coefficient = value.coefficient * std::exchange(inside.coefficient, 1);
    Product guarded = tree_.form(a_.select(n.arg(0), tree_.to_expression(inside, type), n.arg(2)));
    guarded.coefficient *= coefficient;
    return guarded;
  }
  return value;
}

std::optional<Product> Simplifier::proved(const Product& body, const Sum& s, int splits) {
  auto terms = tree_.expand(body, kMaxTerms);
  if (!terms || terms->size() < 2) return std::nullopt;
  std::vector<Product> values, unknown;
  for (const Product& t : *terms) {
    Product v = total(t, s, false, splits + 1);
    if (v.coefficient == v.coefficient)
      values.push_back(under_guard(v, s.type));
    else
      unknown.push_back(t);
  }
  if (!unknown.empty()) {
    // sum(x + r - m) where what is known is sum(x + r).
    if (values.empty() || unknown.size() < 2) return std::nullopt;
    Product v = total(tree_.add(s.type, unknown), s, false, kMaxSplits);
    if (v.coefficient != v.coefficient) return std::nullopt;
    values.push_back(under_guard(v, s.type));
  }
  Product sum = tree_.add(s.type, values);
  if (!sum.is_zero()) {
    // What is left may cancel only once sums inside it are multiplied out.
    auto open = tree_.expand(sum, kMaxTerms);
    if (open && open->size() <= 1) sum = open->empty() ? Product{0, {}} : (*open)[0];
  }
  if (!single_term(sum)) return std::nullopt;
  return sum;
}

// Parts that are zero go; what is left stays in one sum, unless it can be told apart without a difference of sums: the
// rounding of sum(x) - sum(y) is that of the larger, which sum(x - y) may have nothing of.
std::optional<Product> Simplifier::split(const Product& body, const Sum& s, bool create, int splits) {
  const std::vector<Product>* found = body.factors.size() == 1 && body.factors[0].halves == 2 ? tree_.terms(body.factors[0].atom) : nullptr;
  if (!found) return split_product(body, s, create, splits);
  std::vector<Product> terms = *found, known, rest, left;
  for (Product& t : terms) {
    t.coefficient *= body.coefficient;
    Product v = total(t, s, false, splits + 1);
    if (v.is_zero()) continue;
    left.push_back(t);
    if (v.coefficient == v.coefficient)
      known.push_back(std::move(v));
    else
      rest.push_back(t);
  }
  if (left.size() > 1 && (known.empty() || !(like_signs(left, s.type) || all_rounded(left, s)))) {
    if (left.size() == terms.size()) return std::nullopt;
    known.clear();
    rest = left;
  }
  return with_rest(std::move(known), rest, s, create, splits);
}

// The sums that are known, and one of what is left.
std::optional<Product> Simplifier::with_rest(std::vector<Product> known, const std::vector<Product>& rest, const Sum& s, bool create,
                                             int splits) {
  if (!rest.empty()) {
    Product v = total(tree_.add(s.type, rest), s, create, splits + 1);
    if (v.coefficient != v.coefficient) return std::nullopt;
    known.push_back(std::move(v));
  }
  return tree_.add(s.type, known);
}

// p*(a + b) where sum(p*a) is known.
std::optional<Product> Simplifier::split_product(const Product& body, const Sum& s, bool create, int splits) {
  for (const Factor& f : body.factors) {
    const std::vector<Product>* found = f.halves == 2 ? tree_.terms(f.atom) : nullptr;
    if (!found || !all_rounded(*found, s) || !tree_.expand(body, kMaxTerms)) continue;
    const std::vector<Product> terms = *found;
    const Product others = tree_.multiply(body, {1, {{f.atom, -2}}});
    std::vector<Product> known, rest;
    for (const Product& t : terms) {
      const Product whole = tree_.multiply(others, t);
      Product v = total(whole, s, false, splits + 1);
      if (v.coefficient == v.coefficient)
        known.push_back(std::move(v));
      else
        rest.push_back(whole);
    }
    if (!known.empty()) return with_rest(std::move(known), rest, s, create, splits);
  }
  return std::nullopt;
}

// Is each of the terms rounded at each point of the sum: a product, or a function? Then no difference of two of them has more digits than their
// sums have: |a|*u + |b|*u is the bound on the error of either. What is read, such as the x of x - m, is exact there.
bool Simplifier::all_rounded(const std::vector<Product>& terms, const Sum& s) {
  return std::ranges::all_of(terms, [&](const Product& t) {
    const bool at_each = std::ranges::any_of(t.factors, [&](const Factor& f) { return depends_on_any(a_, f.atom, s.bound); });
    const Op op = t.factors.empty() ? Op::constant : a_[t.factors[0].atom].op;
    const bool exact = t.factors.size() == 1 && t.factors[0].halves == 2 && (is_read(op) || op == Op::cast || op == Op::select);
    return at_each && !exact;
  });
}

// The sum is a known one times c if what is left of their difference is zero: sum(c[i]*(c[i] - r)) is sum(c[i]*c[i]) where sum(c[i]) is zero. A
// known sum is off by roundings of its value, which this one has as well.
std::optional<Product> Simplifier::but_for_zeros(const Product& body, const Sum& s, int splits) {
  const auto terms = tree_.expand(body, kMaxTerms);
  if (!terms || terms->size() < 2) return std::nullopt;
  for (const auto& [like, value] : sums_.alike(body, s)) {
    const auto parts = tree_.expand(like, kMaxTerms);
    if (!parts || parts->size() < 2) continue;
    for (const Product& t : *terms) {
      const Product times = tree_.multiply(t, tree_.power((*parts)[0], -2));
      auto refused = [&](const Factor& f) { return f.halves < 0 || depends_on_any(a_, f.atom, s.bound); };
      if (std::ranges::any_of(times.factors, refused)) continue;
      std::vector<Product> difference = *terms;
      for (const Product& part : *parts) difference.push_back(tree_.multiply(tree_.multiply({-1, {}}, times), part));
      const Product left = tree_.add(s.type, difference);
      if (left.is_zero() || total(left, s, false, splits + 1).is_zero()) return tree_.multiply(times, value);
    }
  }
  return std::nullopt;
}

bool Simplifier::like_signs(const std::vector<Product>& terms, DType type) {
  return std::ranges::all_of(terms, [&](const Product& t) {
    return (t.coefficient > 0) == (terms[0].coefficient > 0) &&
           accuracy_.nonnegative(tree_.to_expression({std::abs(t.coefficient), t.factors}, type));
  });
}

Product Simplifier::create_sum(const Product& body, const Sum& s) {
  Id value = tree_.to_expression(body, s.type);
  Id sum = a_.reduce(Op::sum, s.bound, s.condition, value);
  Definition d;
  std::vector<Id> shape, indices;
  for (const AxisRange& r : s.scope)
    if (a_[sum].depends_on(r.axis)) {
      d.axes.push_back(r);
      shape.push_back(r.end);
      indices.push_back(r.axis);
    }
  d.body = sum;
  d.targets = {p_.add_tensor(s.name, s.type, shape)};
  done_.push_back(d);
  sums_.remember(d);
  return tree_.form(read_at(a_, p_, d.target(), indices));
}

// Does it read only what is there also where the sum runs over nothing? An index that is data may be inside for the sum's condition alone.
bool Simplifier::safe_outside(Id factor, const Sum& s) {
  for (Id id : reachable(a_, factor)) {
    const Node n = a_[id];
    if (n.op != Op::read) continue;
    for (size_t i = 0; i < n.arg_count; ++i) {
      Id index = n.arg(i), extent = p_.tensors[n.symbol].shape[i];
      if (std::ranges::any_of(s.scope, [&](const AxisRange& r) { return r.axis == index && r.end == extent; })) continue;
      const auto verdict = prove_bounds(a_, {s.scope, {}, index, extent}).verdict;
      if (verdict == BoundsAnswer::Verdict::violated) return false;
      if (verdict == BoundsAnswer::Verdict::unknown && !is_true(a_, s.condition)) return false;
    }
  }
  return true;
}

// Conditions that do not depend on the summed axes, taken out of the sum if all that it reads is there without them; kNone if there are none.
Id Simplifier::taken_out(const Product& body, Sum& s) {
  Literals all, outer, inner;
  add_literals(a_, all, s.condition);
  for (Id x : all) (depends_on_any(a_, x, s.bound) ? inner : outer).push_back(x);
  if (outer.empty() || s.bound.empty()) return kNone;
  const std::vector<AxisRange> axes = s.all_axes();
  auto stays_inside = [&](Id x, std::span<const AxisRange> over, const Literals& known) { return reads_inside(a_, p_, x, over, known); };
  if (!stays_inside(tree_.to_expression(body, s.type), axes, inner)) return kNone;
  // Conditions read, too: an index that another one has solved is inside for what is taken out.
  if (!std::ranges::all_of(inner, [&](Id x) { return stays_inside(x, axes, inner); })) return kNone;
  if (!std::ranges::all_of(outer, [&](Id x) { return stays_inside(x, s.scope, outer); })) return kNone;
  s.condition = inner.empty() ? a_.boolean(true) : conjunction(a_, inner);
  return conjunction(a_, outer);
}

Product Simplifier::multiplied_out(const Product& value, DType type) {
  if (!multiplied_out_ || value.is_number()) return value;
  auto terms = tree_.expand(value, kMaxOpen);
  return terms ? tree_.add(type, *terms) : value;
}

// (t_s[n]*r[n] - t_m[n])/ties[n]: what is divided by what is opaque may be zero, also where it has no name.
void Simplifier::note_zero_sums(const Definition& d) {
  const std::vector<TensorId> read = tensors_read(a_, d.body);
  if (std::ranges::none_of(read, [&](TensorId t) { return opaque_.contains(t); })) return;
  std::vector<AxisRange> scope = d.axes;
  if (is_reduction(a_[d.body].op))
    for (const AxisRange& r : reduce_axes(a_[d.body])) scope.push_back(r);
  for (Id id : reachable(a_, d.body)) {
    const Node n = a_[id];
    if ((n.op != Op::add && n.op != Op::sub) || !is_float(n.type)) continue;
    if (multiplied_out(tree_.form(inline_reads(a_, id, values_, scope)), n.type).is_zero()) zero_sums_.insert(id);
  }
}

// sum(bound if condition: body) as a product over reads of sums. Without create, coefficient NaN says that
// it would need a sum that does not exist.
Product Simplifier::total(Product body, Sum s, bool create, int splits) {
  if (body.is_zero()) return {0, {}};
  solve_conditions(tree_, s.bound, s.condition, body, s.scope, indices_);
  if (Id outer = taken_out(body, s); outer != kNone) {
    // What holds for all terms or for none.
    Product value = total(body, s, create, splits);
    if (value.coefficient != value.coefficient || value.is_zero()) return value;
    const double coefficient = std::exchange(value.coefficient, 1);
    return tree_.multiply({coefficient, {}}, tree_.form(a_.select(outer, tree_.to_expression(value, s.type), a_.constant(s.type, 0))));
  }
  Product outside{body.coefficient, {}}, inside{1, {}};
  for (const Factor& f : body.factors)
    (depends_on_any(a_, f.atom, s.bound) || !safe_outside(f.atom, s) ? inside : outside).factors.push_back(f);
  // A bound axis that nothing depends on counts.
  for (size_t i = s.bound.size(); i-- > 0;) {
    AxisRange r = s.bound[i];
    auto uses = [&](Id id) { return depends_on_any(a_, id, std::span(&r, 1)); };
    bool used = uses(s.condition) || std::ranges::any_of(inside.factors, [&](const Factor& f) { return uses(f.atom); });
    for (const AxisRange& other : s.bound) used = used || uses(other.begin) || uses(other.end);
    if (used || a_[r.begin].axes_count + a_[r.end].axes_count > 0) continue;
    s.bound.erase(s.bound.begin() + static_cast<std::ptrdiff_t>(i));
    Id extent = is_constant(a_, r.begin, 0) ? r.end : a_.sub(r.end, r.begin);
    outside = tree_.multiply(outside, tree_.form(a_.cast(s.type, extent)));
  }
  if (s.bound.empty() && is_true(a_, s.condition)) return tree_.multiply(outside, inside);
  auto with_outside = [&](const Product& v) { return tree_.multiply(outside, v); };
  if (multiplied_out_ && !s.bound.empty()) {
    auto terms = tree_.expand(inside, kMaxOpen);
    if (terms && !(terms->size() == 1 && (*terms)[0] == inside)) {
      std::vector<Product> values;
      for (const Product& t : *terms) values.push_back(total(t, s, create, splits));
      return with_outside(tree_.add(s.type, values));
    }
    splits = kMaxSplits;
  }
  if (!s.bound.empty() && !inside.is_number()) {
    if (auto v = sums_.known(inside, s)) return with_outside(*v);
    if (splits < kMaxSplits) {
      for (const auto& [factors, one] : splits < kMaxInner ? sums_.inner_sums(inside, s) : std::vector<std::pair<Product, Sum>>{})
        if (total(factors, one, false, kMaxInner).is_zero()) return {0, {}};
      if (auto v = proved(inside, s, splits)) return with_outside(*v);
      if (auto v = split(inside, s, create, splits)) return with_outside(*v);
      if (auto v = create ? but_for_zeros(inside, s, splits) : std::nullopt) return with_outside(*v);
    }
  }
  if (s.bound.empty()) {
    // A sum over nothing but a condition, which guards all there is: 0 times what stays outside could be nan.
    Id guarded = tree_.to_expression(tree_.multiply({1, outside.factors}, inside), s.type);
    return tree_.multiply({outside.coefficient, {}}, tree_.form(a_.select(s.condition, guarded, a_.constant(s.type, 0))));
  }
  if (!create) return {std::nan(""), {}};
  if (splits < kMaxSplits) {
    if (auto v = sums_.in_parts(inside, s)) return with_outside(total(v->first, v->second, true, kMaxSplits));
    if (auto v = sums_.regrouped(inside, s)) return with_outside(total(v->first, v->second, true, kMaxSplits));
  }
  return with_outside(create_sum(inside, s));
}

// A reduction evaluates what it contains once per step. What depends on some of its axes but not on all
// there are (an operand of a matrix product) stays a definition unless it is cheap.
std::map<TensorId, PointValue> Simplifier::inlinable(const Definition& d) {
  const Node n = a_[d.body];
  std::map<TensorId, PointValue> values;
  for (TensorId t : tensors_read(a_, d.body))
    if (auto it = values_.find(t); it != values_.end()) values.insert(*it);
  if (!is_reduction(n.op) || multiplied_out_) return values;
  std::vector<AxisRange> bound = reduce_axes(n), all = d.axes;
  all.insert(all.end(), bound.begin(), bound.end());
  // A condition `ids[b] == v` leaves one v: that is a scatter-add, which does not loop over it.
  for (Id id : reachable(a_, reduce_condition(n)))
    if (a_[id].op == Op::eq)
      for (Id side : a_[id].args()) std::erase_if(all, [&](const AxisRange& r) { return r.axis == side; });
  for (Id id : reachable(a_, d.body)) {
    auto it = is_read(a_[id].op) ? values.find(a_[id].symbol) : values.end();
    if (it == values.end() || !depends_on_any(a_, id, bound)) continue;
    bool everywhere = std::ranges::all_of(all, [&](const AxisRange& r) { return depends_on_any(a_, id, {&r, 1}); });
    if (everywhere || evaluation_cost_ps(a_, it->second.value) <= kCheap_ps) continue;
    if (auto d2 = written_out_.find(it->first); d2 != written_out_.end()) {
      done_.push_back(d2->second);
      written_out_.erase(d2);
      if (auto name = renamed_.find(it->first); name != renamed_.end()) {
        std::string again = name->second;
        for (int i = 1; p_.find(again); ++i) again = name->second + "_" + std::to_string(i);
        p_.tensors[it->first].name = again;
      }
    }
    if (const Node guard = a_[it->second.value]; guard.op == Op::select && is_constant(a_, guard.arg(2), 0))
      guards_[it->first] = {it->second.axes, guard.arg(0)};
    values.erase(it);
  }
  return values;
}

void Simplifier::backward(Definition d) {
  if (d.is_call()) throw Bug("simplify_reductions: calls must be expanded before");
  if (multiplied_out_) note_zero_sums(d);
  d.body = inline_reads(a_, d.body, inlinable(d), d.axes);
  d.body = rewrite(a_, d.body, [&](Id id) { return tidy_index(a_, id); });
  const Node n = a_[d.body];
  bool map = !is_reduction(n.op);
  bool stays = has_tensor(p_.gradients, d.target()) || pinned_.contains(d.target()) || stays_written(a_, uses_, d);
  if (map && !stays && is_float(n.type) && deciding_.contains(d.target())) {
    values_[d.target()] = {axes_of(d.axes), d.body};
    written_out_[d.target()] = d;
    return;
  }
  if (!is_float(n.type) || (!map && n.op != Op::sum) || deciding_.contains(d.target()) || opaque_.contains(d.target())) {
    done_.push_back(d);
    if (n.op == Op::sum && !opaque_.contains(d.target())) sums_.remember(d);
    return;
  }
  Product value;
  if (map)
    value = tree_.form(d.body);
  else {
    Sum s{reduce_axes(n), reduce_condition(n), d.axes, n.type, p_.tensors[d.target()].name};
    // The name is free again if the definition goes; else the new sum gets a suffix.
    if (!stays) {
      renamed_[d.target()] = p_.tensors[d.target()].name;
      p_.tensors[d.target()].name = "dead_" + std::to_string(d.target());
    }
    Product body = tree_.form(reduce_body(n));
    add_conditions_of_factors(a_, guards_, body, s.bound, s.scope, s.condition);
    size_t before = done_.size();
    value = total(body, s, true, 0);
    bool own = stays && done_.size() == before + 1 && value.factors.size() == 1 && value.factors[0].halves == 2 &&
               a_[value.factors[0].atom].symbol == done_.back().target() && done_.back().axes.size() == d.axes.size();
    if (own) {
      // The new sum is the definition itself; a number that was pulled out goes back in.
      Definition made = done_.back();
      done_.pop_back();
      sums_.rename_last(made.target(), d.target(), value.coefficient);  // a count is not among the sums that are known
      if (value.coefficient != 1) {
        const Node sum = a_[made.body];
        Product scaled = tree_.form(reduce_body(sum));
        scaled.coefficient *= value.coefficient;
        made.body = a_.reduce(Op::sum, reduce_axes(sum), reduce_condition(sum), tree_.to_expression(scaled, n.type));
      }
      made.targets = d.targets;
      p_.tensors.pop_back();
      done_.push_back(made);
      return;
    }
  }
  value = multiplied_out(value, n.type);
  if (value.is_zero()) zeros_.insert(d.target());
  d.body = tree_.to_expression(value, n.type);
  if (multiplied_out_ && !map && !stays && single_term(value) && reads_forward_only(d.body))
    terms_of_forward_[d.target()] = {axes_of(d.axes), d.body};
  if (stays) {
    done_.push_back(d);
  } else {
    values_[d.target()] = {axes_of(d.axes), d.body};
    written_out_[d.target()] = d;
  }
}

Program Simplifier::run() {
  deciding_ = feeds_control(p_);
  for (const Definition& d : p_.definitions())
    for (Id id : reachable(a_, d.body))
      if (a_[id].op == Op::read_or) pinned_.insert(a_[id].symbol);
  for (const Definition& d : p_.forward.definitions) {
    Definition open = d;
    open.body = inline_reads(a_, d.body, values_, d.axes);
    bool map = !is_reduction(a_[d.body].op);
    if (!map && !has_tensor(hidden_, d.target())) sums_.remember(open);
    if (map && is_float(a_[d.body].type) && !has_tensor(kept_, d.target()) && !pinned_.contains(d.target()) && !stays_written(a_, uses_, d))
      values_[d.target()] = {axes_of(d.axes), open.body};
  }
  for (const Definition& d : fewest_reads_first(a_, p_.backward)) backward(d);
  p_.backward.definitions = std::move(done_);
  name_after_gradients(p_);
  return without_dead(ordered(p_));
}

}  // namespace

Program simplify_reductions(const Program& p, const std::vector<TensorId>& kept, const std::vector<TensorId>& hidden) {
  TensorExprTree tree(*p.arena);
  return Simplifier(p, tree, kept, hidden).run();
}

MultipliedOut multiplied_out(const Program& p, const std::set<TensorId>& opaque) {
  TensorExprTree tree(*p.arena);
  const std::vector<TensorId> none;  // outlives it
  Simplifier open(p, tree, none, none);
  open.multiply_out(opaque);
  Program program = open.run();
  return {std::move(program), open.zeros(), open.terms_of_forward(), open.zero_sums()};
}

Program simplify_reductions(const Program& p, const std::vector<TensorId>& kept, TensorExprTree& tree) {
  return Simplifier(p, tree, kept, {}).run();
}

}  // namespace xhat
