#include "cse/algebra/empty_sums.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "cse/match/bodies.h"
#include "expr/core/uses.h"
#include "expr/index/affine.h"

namespace xhat {
namespace {

// Where a value is 0 for want of terms.
struct Vanishing {
  std::vector<Id> conditions;  // where one of them fails, the value is 0
  std::vector<Id> extents;     // of dims alone: where one of them is 0, the value is 0
};

void put(std::vector<Id>& list, Id id) {
  if (std::ranges::find(list, id) == list.end()) list.push_back(id);
}
void keep_shared(std::vector<Id>& list, const std::vector<Id>& other) {
  std::erase_if(list, [&](Id id) { return std::ranges::find(other, id) == other.end(); });
}

class EmptySums {
 public:
  explicit EmptySums(const Program& p) : p_(p), a_(*p.arena), tree_(a_), deciding_(feeds_control(p)) {
    for (const Precondition& c : p.preconditions) preconditions_.push_back(c.condition);
  }
  Program run();

 private:
  void in_definition(Definition& d, bool backward);
  void enter(std::vector<AxisRange> scope);
  Id guarded(Id expression, int depth) {
    return tree_.to_expression(guarded(tree_.form(expression), a_[expression].type, depth),
                               a_[expression].type);
  }
  Product guarded(const Product& p, DType type, int depth);
  Product inside(const Product& p, int depth);
  Product inside_atom(Id atom, int depth);
  bool holds_sum(Id expression);
  std::vector<Id> needed(const Product& p);
  bool others_vanish(const Product& p, const Factor& f);
  Vanishing vanishing(const Product& p);
  Vanishing vanishing(Id atom);
  std::optional<Vanishing> vanishing_count(Id atom);
  Vanishing vanishing_read(Id read);
  const Vanishing& vanishing_atom(Id atom);
  const Definition* sum_of(Id atom) const;
  bool at_least_one(Id extent);
  bool finite(Id expression);
  bool finite_node(const Node& n);
  bool positive(Id id);

  Program p_;
  Arena& a_;
  const Uses uses_{p_};
  TensorExprTree tree_;
  std::vector<Id> preconditions_;
  std::set<TensorId> deciding_;  // stay as they are
  std::vector<bool> finite_tensor_;
  std::unordered_map<Id, bool> holds_sum_;
  // In the scope at hand:
  std::vector<AxisRange> scope_;
  std::vector<Id> known_;  // guards that stand around
  std::unordered_map<Id, bool> at_least_one_, finite_;
  std::unordered_map<Id, Vanishing> vanishing_;
  std::map<std::vector<Id>, std::unordered_map<Id, Product>> inside_;  // by the guards that stand around, and the atom
  bool changed_ = false;
};

const Definition* EmptySums::sum_of(Id atom) const {
  const Node& n = a_[atom];
  const Definition* d = n.op == Op::read ? uses_.definition(n.symbol) : nullptr;
  return d && !d->is_call() && a_[d->body].op == Op::sum ? d : nullptr;
}

bool EmptySums::holds_sum(Id expression) {
  if (auto it = holds_sum_.find(expression); it != holds_sum_.end()) return it->second;
  for (Id id : reachable(a_, expression))
    if (!holds_sum_.contains(id))
      holds_sum_[id] = sum_of(id) || std::ranges::any_of(a_[id].args(), [&](Id x) { return holds_sum_.at(x); });
  return holds_sum_.at(expression);
}

bool EmptySums::at_least_one(Id extent) {
  if (a_[extent].op == Op::constant) return a_[extent].integer > 0;
  if (auto it = at_least_one_.find(extent); it != at_least_one_.end()) return it->second;
  return at_least_one_[extent] = in_bounds(a_, a_.integer(0), extent, scope_, preconditions_);
}

bool EmptySums::positive(Id id) {
  const Node& n = a_[id];
  switch (n.op) {
    case Op::constant: return is_float(n.type) ? n.value > 0 : n.integer > 0;
    case Op::dim: return at_least_one(id);
    case Op::cast:
    case Op::sqrt:
    case Op::rsqrt: return positive(n.arg(0));
    case Op::add:
    case Op::mul:
    case Op::div: return positive(n.arg(0)) && positive(n.arg(1));
    case Op::exp:
    case Op::exp2:
    case Op::cosh:
    case Op::sigmoid:
    case Op::softplus: return true;
    default: return false;
  }
}

// The operands are in finite_.
bool EmptySums::finite_node(const Node& n) {
  if (!is_float(n.type)) return true;
  auto known = [&](size_t i) { return !is_float(a_[n.arg(i)].type) || finite_.at(n.arg(i)); };
  switch (n.op) {
    case Op::constant: return std::isfinite(n.value);
    case Op::read: return finite_tensor_[n.symbol];
    case Op::read_or: return finite_tensor_[n.symbol] && finite_.at(n.args().back());
    case Op::select: return known(1) && known(2);
    case Op::sum:
    case Op::prod: return known(0);
    case Op::max:
    case Op::min:
    case Op::mod:
    case Op::log:
    case Op::log1p:
    case Op::log2:
    case Op::log10:
    case Op::asin:
    case Op::acos:
    case Op::acosh:
    case Op::atanh:
    case Op::erfinv:
    case Op::lgamma:
    case Op::digamma:
    case Op::polygamma:
    case Op::fmod:
    case Op::remainder: return false;
    case Op::div: return known(0) && known(1) && positive(n.arg(1));
    case Op::sqrt:
    case Op::rsqrt: return known(0) && positive(n.arg(0));
    case Op::pow: return known(0) && a_[n.arg(1)].op == Op::constant && a_[n.arg(1)].value >= 0;
    default: {
      bool all = true;
      for (size_t i = 0; i < n.arg_count; ++i) all = all && known(i);
      return all;
    }
  }
}

bool EmptySums::finite(Id expression) {
  if (auto it = finite_.find(expression); it != finite_.end()) return it->second;
  for (Id id : reachable(a_, expression))
    if (!finite_.contains(id)) finite_[id] = finite_node(a_[id]);
  return finite_.at(expression);
}

Vanishing EmptySums::vanishing_read(Id read) {
  const Node n = a_[read];
  const Definition* d = sum_of(read);
  if (!d) return {};
  const Node sum = a_[d->body];
  Replacements at;
  for (size_t i = 0; i < d->axes.size(); ++i) at[d->axes[i].axis] = a_.to(DType::i64, n.arg(i));
  Vanishing v;
  bool by_sizes = is_true(a_, reduce_condition(sum));
  for (const AxisRange& r : reduce_axes(sum)) {
    Id extent = is_constant(a_, r.begin, 0) ? r.end : a_.sub(r.end, r.begin);
    bool dims_only = a_[extent].axes_count == 0 && tensors_read(a_, extent).empty();
    bool depends = !dims_only && depends_on_any(a_, extent, reduce_axes(sum));
    if (!depends && at_least_one(substitute(a_, extent, at))) continue;
    if (dims_only) put(v.extents, extent);
    by_sizes = by_sizes && dims_only;
  }
  Id zero = a_.integer(0);
  if (!by_sizes)
    v.conditions.push_back(a_.binary(Op::ne, read, a_.constant(n.type, 0)));
  else
    for (Id e : v.extents) v.conditions.push_back(a_.binary(Op::lt, zero, e));
  return v;
}

// A sum of what does not depend on its axis became a count.
std::optional<Vanishing> EmptySums::vanishing_count(Id atom) {
  while (a_[atom].op == Op::cast) atom = a_[atom].arg(0);
  if (a_[atom].op != Op::dim || at_least_one(atom)) return std::nullopt;
  return Vanishing{{a_.binary(Op::lt, a_.integer(0), atom)}, {atom}};
}

Vanishing EmptySums::vanishing(Id atom) {
  if (auto count = vanishing_count(atom)) return *count;
  const std::vector<Product>* terms = tree_.terms(atom);
  if (const Product* product = tree_.factors(atom)) return vanishing(*product);
  if (!terms) return vanishing_read(atom);
  // All terms together, or by what they share.
  Vanishing all;
  Id any = kNone;
  for (const Product& t : *terms) {
    Vanishing v = vanishing(t);
    if (v.conditions.empty()) return {};
    Id whole = kNone;
    for (Id c : v.conditions) whole = whole == kNone ? c : a_.land(whole, c);
    if (any == kNone) all = v;
    any = any == kNone || any == whole ? whole : a_.binary(Op::lor, any, whole);
    keep_shared(all.conditions, v.conditions);
    keep_shared(all.extents, v.extents);
  }
  if (all.conditions.empty()) all.conditions.push_back(any);
  return all;
}

const Vanishing& EmptySums::vanishing_atom(Id atom) {
  auto it = vanishing_.find(atom);
  if (it == vanishing_.end()) it = vanishing_.emplace(atom, vanishing(atom)).first;
  return it->second;
}

Vanishing EmptySums::vanishing(const Product& p) {
  Vanishing all;
  for (const Factor& f : p.factors) {
    if (f.halves < 0) continue;
    const Vanishing& v = vanishing_atom(f.atom);
    for (Id c : v.conditions) put(all.conditions, c);
    for (Id e : v.extents) put(all.extents, e);
  }
  return all;
}

// Can the product be 0 for want of terms in something else than this factor?
bool EmptySums::others_vanish(const Product& p, const Factor& f) {
  Product rest = p;
  std::erase(rest.factors, f);
  const std::vector<Id>& own = vanishing_atom(f.atom).conditions;
  return std::ranges::any_of(vanishing(rest).conditions, [&](Id c) { return std::ranges::find(own, c) == own.end(); });
}

// The conditions under which the product may be evaluated.
std::vector<Id> EmptySums::needed(const Product& p) {
  Vanishing v = vanishing(p);
  if (v.conditions.empty()) return {};
  std::vector<Id> sizes;
  bool other = false;
  for (const Factor& f : p.factors) {
    if (f.halves > 0 && sum_of(f.atom) && (finite(f.atom) || !others_vanish(p, f))) continue;
    bool whole = f.halves > 0 && f.halves % 2 == 0;
    if (finite(f.atom) && (whole || positive(f.atom))) continue;
    // 1/N alone is infinite for N = 0 only.
    Id size = f.atom;
    while (a_[size].op == Op::cast) size = a_[size].arg(0);
    if (a_[size].op == Op::dim && std::ranges::find(v.extents, size) != v.extents.end())
      put(sizes, a_.binary(Op::lt, a_.integer(0), size));
    else
      other = true;
  }
  std::vector<Id> guards = other ? v.conditions : sizes;
  std::erase_if(guards, [&](Id c) { return std::ranges::find(known_, c) != known_.end(); });
  return guards;
}

Product EmptySums::guarded(const Product& p, DType type, int depth) {
  if (depth > kDeepest) return p;
  std::vector<Id> guards = needed(p);
  known_.insert(known_.end(), guards.begin(), guards.end());
  Product value = inside(p, depth);
  known_.resize(known_.size() - guards.size());
  if (guards.empty()) return value;
  changed_ = true;
  Id all = kNone;
  for (Id c : guards) all = all == kNone ? c : a_.land(all, c);
  return tree_.form(a_.select(all, tree_.to_expression(value, type), a_.constant(type, 0)));
}

Product EmptySums::inside(const Product& p, int depth) {
  Product result{p.coefficient, {}};
  for (const Factor& f : p.factors) {
    auto& known = inside_[known_];
    auto it = known.find(f.atom);
    if (it == known.end()) {
      Product made = inside_atom(f.atom, depth);  // which adds to inside_
      it = known.emplace(f.atom, std::move(made)).first;
    }
    tree_.multiply_in(result, it->second, f.halves);
  }
  return result;
}

Product EmptySums::inside_atom(Id atom, int depth) {
  const Node n = a_[atom];
  if (is_read(n.op) || is_reduction(n.op) || !holds_sum(atom)) return tree_.atom(atom);
  if (const auto* found = tree_.terms(atom)) {
    std::vector<Product> before = *found, after;
    for (const Product& t : before) after.push_back(guarded(t, n.type, depth + 1));
    return after == before ? tree_.atom(atom) : tree_.add(n.type, after);
  }
  if (const Product* product = tree_.factors(atom)) {
    Product before = *product, after = guarded(before, n.type, depth + 1);
    return after == before ? tree_.atom(atom) : after;
  }
  std::vector<Id> args;
  for (Id x : n.args()) args.push_back(is_float(a_[x].type) ? guarded(x, depth + 1) : x);
  return std::ranges::equal(args, n.args()) ? tree_.atom(atom) : tree_.form(a_.with_args(atom, args));
}

void EmptySums::enter(std::vector<AxisRange> scope) {
  scope_ = std::move(scope);
  at_least_one_.clear();
  finite_.clear();
  vanishing_.clear();
  inside_.clear();
}

void EmptySums::in_definition(Definition& d, bool backward) {
  const Node root = a_[d.body];
  bool reduces = is_reduction(root.op);
  std::vector<AxisRange> scope = d.axes;
  if (reduces)
    for (const AxisRange& r : reduce_axes(root)) scope.push_back(r);
  enter(std::move(scope));
  Id body = reduces ? reduce_body(root) : d.body;
  if (backward && is_float(a_[body].type) && !deciding_.contains(d.target()) && holds_sum(body)) {
    changed_ = false;
    Id now = guarded(body, 0);
    if (changed_) d.body = reduces ? a_.reduce(root.op, reduce_axes(root), reduce_condition(root), now) : now;
  }
  finite_tensor_[d.target()] = finite(d.body);
}

Program EmptySums::run() {
  finite_tensor_.assign(p_.tensors.size(), true);
  for (Region* r : {&p_.forward, &p_.backward})
    for (Definition& d : r->definitions) in_definition(d, r == &p_.backward);
  return p_;
}

}  // namespace

Program guard_empty_sums(const Program& p) { return EmptySums(p).run(); }

}  // namespace xhat
