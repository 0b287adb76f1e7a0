#include "cse/algebra/whole_differences.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "cse/match/bodies.h"
#include "cse/match/unify.h"
#include "cse/normalize/auto_inliner.h"
#include "expr/index/linear.h"

namespace xhat {
namespace {

constexpr size_t kMostValues = 16;  // of choices in choices

class WholeDifferences {
 public:
  explicit WholeDifferences(const Program& p) : p_(p), a_(*p_.arena), tree_(a_), deciding_(feeds_control(p_)) {
    const Uses uses(p_);
    std::set<TensorId> pinned;  // read with a value outside
    for (const Definition& d : p_.definitions())
      for (Id id : d.is_call() ? std::vector<Id>{} : reachable(a_, d.body))
        if (a_[id].op == Op::read_or) pinned.insert(a_[id].symbol);
    for (const Definition& d : p_.definitions())
      if (!d.is_call() && is_float(a_[d.body].type) && !is_reduction(a_[d.body].op) && !pinned.contains(d.target()) &&
          !stays_written(a_, uses, d))
        maps_[d.target()] = {axes_of(d.axes), inline_reads(a_, d.body, maps_, d.axes)};
  }

  Program run(const std::set<TensorId>& written) {
    for (Definition& d : p_.definitions())
      if (!d.is_call() && !deciding_.contains(d.target()) && !written.contains(d.target())) {
        body_ = reachable(a_, d.body);
        done_.clear();
        d.body = in(d.body);
      }
    return std::move(p_);
  }

 private:
  // What an extreme is taken of, and the axes that it is taken over.
  struct Operand {
    Id value;
    std::set<Id> over;
  };

  void add_operands(Id extreme, std::vector<Operand>& found) {
    const Node n = a_[extreme];
    switch (n.op) {
      case Op::maximum:
      case Op::minimum:
      case Op::clamp:
      case Op::select:
        for (size_t i = n.op == Op::select ? 1 : 0; i < n.arg_count; ++i) {
          if (n.op != Op::select) found.push_back({n.arg(i), {}});
          add_operands(n.arg(i), found);
        }
        return;
      case Op::stop_gradient: return add_operands(n.arg(0), found);
      case Op::read: break;
      default:
        if (rounds_to_whole(n.op)) found.push_back({n.arg(0), {}});
        return;
    }
    const Definition* d = p_.definition_of(n.symbol);
    if (!d || d->is_call() || !is_float(n.type)) return;
    Pattern pattern = pattern_of(a_, *d);
    Replacements at;
    for (size_t i = 0; i < pattern.free.size(); ++i) at[pattern.free[i].axis] = a_.to(DType::i64, n.arg(i));
    const Id value = substitute(a_, pattern.body, at);
    const Op op = a_[d->body].op;
    if (!is_reduction(op)) return add_operands(value, found);
    if (op != Op::max && op != Op::min) return;
    Operand whole{value, {}};
    for (const AxisRange& r : pattern.bound) whole.over.insert(r.axis);
    found.push_back(whole);
  }

  // The operand as it stands and written out; of a choice, what may be chosen.
  std::vector<Id> values_of(Id operand) {
    std::vector<Id> values = {operand, inline_reads(a_, operand, maps_, {})};
    for (size_t k = 0; k < values.size(); ++k)
      if (const Node n = a_[values[k]]; n.op == Op::select && values.size() < kMostValues)
        values.insert(values.end(), {n.arg(1), n.arg(2)});
    return values;
  }

  std::vector<Product> terms_of(Id expression) {
    const Product p = tree_.form(expression);
    const auto* inner = p.factors.size() == 1 && p.factors[0].halves == 2 ? tree_.terms(p.factors[0].atom) : nullptr;
    if (!inner) return {p};
    std::vector<Product> terms = *inner;
    for (Product& t : terms) t.coefficient *= p.coefficient;
    return terms;
  }

  // Finds for each of the terms another one of the sum that is its instance, with its coefficient times `sign`.
  bool find_all(Unifier& unifier, const std::vector<Product>& terms, double sign, const std::vector<Product>& sum, std::vector<bool>& taken,
                size_t k, Binding& binding) {
    if (k == terms.size()) return true;
    const Product& t = terms[k];
    for (size_t j = 0; j < sum.size(); ++j) {
      if (taken[j] || sum[j].factors.size() != t.factors.size() || !negligible(sum[j].coefficient - sign * t.coefficient, t.coefficient))
        continue;
      taken[j] = true;
      const Binding before = binding;
      auto exponents = [](const Product& p) {
        std::vector<int> all;
        for (const Factor& f : p.factors) all.push_back(f.halves);
        std::ranges::sort(all);
        return all;
      };
      if (exponents(t) == exponents(sum[j]))
        for (const Binding& found : unifier.contained(t.factors, sum[j].factors, before)) {
          binding = found;
          if (find_all(unifier, terms, sign, sum, taken, k + 1, binding)) return true;
        }
      binding = before;
      taken[j] = false;
    }
    return false;
  }

  struct Difference {
    Id value = kNone;
    bool minus = false;  // the sum has it with the other sign
    std::vector<bool> taken;
    size_t terms = 0;
  };

  // The difference of this term, if it is an extreme, and of what that is taken of.
  Difference difference(const std::vector<Product>& sum, size_t extreme, Id whole) {
    Difference best;
    const Product& m = sum[extreme];
    if (m.factors.size() != 1 || m.factors[0].halves != 2 || std::abs(m.coefficient) != 1) return best;
    std::vector<Operand> operands;
    add_operands(m.factors[0].atom, operands);
    for (const Operand& o : operands)
      for (Id value : values_of(o.value)) {
        const std::vector<Product> terms = terms_of(value);
        if (terms.size() <= best.terms || terms.size() >= sum.size()) continue;
        Unifier unifier(tree_, o.over);
        std::vector<bool> taken(sum.size());
        taken[extreme] = true;
        Binding binding;
        if (!find_all(unifier, terms, -m.coefficient, sum, taken, 0, binding)) continue;
        if (std::ranges::any_of(o.over, [&](Id axis) { return a_[value].depends_on(axis) && !binding.contains(axis); })) continue;
        const Id here =
            rewrite(a_, substitute(a_, value, Replacements(binding.begin(), binding.end())), [&](Id id) { return tidy_index(a_, id); });
        if (!std::ranges::all_of(tensors_read(a_, here), [&](TensorId t) { return has_tensor(tensors_read(a_, whole), t); })) continue;
        // The sign that another one has already.
        const Id atom = m.factors[0].atom, above = a_.sub(here, atom), below = a_.sub(atom, here);
        const bool turned = !has(below) && (has(above) || m.coefficient < 0);
        best = {turned ? above : below, turned != (m.coefficient < 0), taken, terms.size()};
      }
    return best;
  }

  bool has(Id difference) const { return std::ranges::binary_search(body_, difference); }

  // differences: those that it has now.
  Id sum_in_order(Id whole, std::vector<Id>& differences) {
    std::vector<Product> sum = terms_of(whole);
    if (sum.size() < 2) return whole;
    std::vector<std::pair<Id, bool>> parts;  // and whether they are subtracted
    for (;;) {
      Difference best;
      for (size_t i = 0; i < sum.size(); ++i)
        if (Difference d = difference(sum, i, whole); d.terms > best.terms) best = std::move(d);
      if (best.value == kNone) break;
      differences.push_back(best.value);
      parts.push_back({best.value, best.minus});
      std::vector<Product> rest;
      for (size_t i = 0; i < sum.size(); ++i)
        if (!best.taken[i]) rest.push_back(sum[i]);
      sum = std::move(rest);
    }
    const std::vector<Id> there = reachable(a_, whole);
    if (std::ranges::all_of(differences, [&](Id d) { return std::ranges::binary_search(there, d); })) return whole;
    const DType type = a_[whole].type;
    auto put = [&](Product t) {
      const bool minus = t.coefficient < 0;
      t.coefficient = std::abs(t.coefficient);
      parts.push_back({tree_.to_expression(t, type), minus});
    };
    // What has fewer axes is one term.
    const size_t all = a_[whole].free_axes().size();
    auto [few, rest] = std::ranges::stable_partition(sum, [&](const Product& t) { return tree_.free_axes(t).size() == all; });
    std::vector<Product> invariant(few, rest);
    sum.erase(few, rest);
    if (!invariant.empty()) put(tree_.add(type, invariant));
    for (const Product& t : sum) put(t);
    std::ranges::stable_partition(parts, [](const auto& part) { return !part.second; });
    Id value = parts[0].second ? a_.unary(Op::neg, parts[0].first) : parts[0].first;
    for (size_t i = 1; i < parts.size(); ++i) value = parts[i].second ? a_.sub(value, parts[i].first) : a_.add(value, parts[i].first);
    return value;
  }

  static bool is_term(Op op) { return op == Op::add || op == Op::sub || op == Op::neg; }

  // The sum with its terms changed, but for the differences.
  Id in_terms(Id id, const std::vector<Id>& differences) {
    if (std::ranges::count(differences, id) > 0) return id;
    const Node n = a_[id];
    if (!is_term(n.op)) return in(id);
    std::vector<Id> args;
    for (Id x : n.args()) args.push_back(in_terms(x, differences));
    return a_.with_args(id, args);
  }

  // What is no float, and what jumps, decides.
  Id in(Id id) {
    const Node n = a_[id];
    if (!is_float(n.type) || jumps(n.op) || n.op == Op::maximum || n.op == Op::minimum || (is_reduction(n.op) && n.op != Op::sum))
      return id;
    if (auto known = done_.find(id); known != done_.end()) return known->second;
    Id made = id;
    if (is_term(n.op)) {
      std::vector<Id> differences;
      const Id sum = sum_in_order(id, differences);
      made = in_terms(sum, differences);
    } else if (!is_read(n.op)) {
      std::vector<Id> args;
      for (Id x : n.args()) args.push_back(in(x));
      made = a_.with_args(id, args);
    }
    return done_[id] = made;
  }

  Program p_;
  Arena& a_;
  TensorExprTree tree_;
  const std::set<TensorId> deciding_;
  std::map<TensorId, PointValue> maps_;
  std::vector<Id> body_;  // all of the definition at hand
  std::map<Id, Id> done_;
};

}  // namespace

Program with_whole_differences(const Program& p, const std::set<TensorId>& written) {
  const bool extremes = std::ranges::any_of(p.definitions(), [&](const Definition& d) {
    return !d.is_call() && std::ranges::any_of(reachable(*p.arena, d.body), [&](Id id) {
      const Op op = (*p.arena)[id].op;
      return op == Op::max || op == Op::min || op == Op::maximum || op == Op::minimum || op == Op::clamp || rounds_to_whole(op);
    });
  });
  return extremes ? WholeDifferences(p).run(written) : p;
}

}  // namespace xhat
