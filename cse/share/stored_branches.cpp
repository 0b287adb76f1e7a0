#include "cse/share/stored_branches.h"

#include <algorithm>

#include "expr/core/machine_model.h"

namespace xhat {
namespace {

// v is k*u for a k of at least 1: where u is positive it is, too, without underflow.
bool grows_with(const Product& v, const Product& u) {
  return v.factors == u.factors && v.coefficient >= u.coefficient && u.coefficient > 0;
}

// v is not positive where u is not.
bool stays_below(TensorExprTree& tree, const Product& v, const Product& u) {
  const Arena& a = tree.arena();
  if (v.is_zero()) return true;
  if (v.coefficient < 0) return false;
  if (v.factors == u.factors && u.coefficient > 0) return true;
  if (v.factors.size() != 1 || v.factors[0].halves != 2) return false;
  Id atom = v.factors[0].atom;
  auto of_u = [&](Id function, Op op) { return a[function].op == op && tree.form(a[function].arg(0)) == u; };
  if (of_u(atom, Op::expm1)) return true;
  const auto* terms = tree.terms(atom);
  if (!terms || terms->size() != 2 || !(*terms)[1].is_number()) return false;
  const Product &e = (*terms)[0], &number = (*terms)[1];
  return e.coefficient > 0 && number.coefficient <= -e.coefficient && e.factors.size() == 1 && e.factors[0].halves == 2 &&
         of_u(e.factors[0].atom, Op::exp);
}

// 0 < u (true) or u <= 0 (false), and u.
std::optional<std::pair<bool, Id>> question(const Arena& a, Id condition) {
  const Node& n = a[condition];
  if (n.op == Op::lt && is_float(a[n.arg(0)].type) && is_constant(a, n.arg(0), 0)) return {{true, n.arg(1)}};
  if (n.op == Op::le && is_float(a[n.arg(0)].type) && is_constant(a, n.arg(1), 0)) return {{false, n.arg(0)}};
  return std::nullopt;
}

Product with_axes(TensorExprTree& tree, const Product& p, DType type, const Binding& binding) {
  Replacements at(binding.begin(), binding.end());
  return tree.form(substitute(tree.arena(), tree.to_expression(p, type), at));
}

class BranchReuse {
 public:
  BranchReuse(const Program& p, TensorExprTree& tree, Sharing& sharing, const std::set<TensorId>& dropped,
              std::span<const AxisRange> scope)
      : p_(p), tree_(tree), a_(tree.arena()), sharing_(sharing), dropped_(dropped), scope_(scope) {}

  Id select(const StoredBranches& s, Id id) {
    std::set<Id> axes;
    for (const AxisRange& r : s.free) axes.insert(r.axis);
    Id asked = a_[id].arg(0), yes = a_[id].arg(1), no = a_[id].arg(2);
    if (a_[asked].op == Op::lnot) {
      asked = a_[asked].arg(0);
      std::swap(yes, no);
    }
    auto binding = Unifier(tree_, axes).atoms(s.condition, asked);
    if (!binding || !covers(a_, s.free, *binding, scope_)) return id;
    std::vector<Id> indices;
    for (const AxisRange& r : s.free) indices.push_back(tidy_index(a_, binding->at(r.axis)));
    Id read = read_at(a_, p_, s.tensor, indices), condition = asked;
    if (s.by_sign) {
      Id zero = a_.constant(a_[read].type, 0);
      condition = a_[s.condition].op == Op::lt ? a_.binary(Op::lt, zero, read) : a_.binary(Op::le, read, zero);
    }
    Id made = a_.select(condition, branch(s, s.then, *binding, read, yes),
                        branch(s, s.otherwise, *binding, read, no));
    return price(made) < price(id) ? made : id;
  }

 private:
  Id branch(const StoredBranches& s, const Product& value, const Binding& binding, Id read, Id body) {
    DType type = p_.tensors[s.tensor].type;
    auto unscaled = [factor = s.factor](const Product& r) {
      Product v = r;
      v.coefficient /= factor;
      return v;
    };
    auto forms = stored_forms(tree_, type, s.tensor, {}, with_axes(tree_, value, type, binding), unscaled);
    if (forms.empty()) return body;
    for (StoredValue& v : forms) v.read = read;
    Wanted wanted = sharing_.wanted(forms);
    Product now = sharing_.everywhere(tree_.form(body), wanted,
                                      [&](const Product& p) { return sharing_.fold(p_, p, forms, scope_); });
    return tree_.to_expression(now, a_[body].type);
  }

  int64_t price(Id id) const {
    int64_t sum = 0;
    std::set<TensorId> read;
    for (Id x : reachable(a_, id)) {
      const Node& n = a_[x];
      if (is_read(n.op)) read.insert(n.symbol);
      else if (is_float(n.type) || n.type == DType::boolean) sum += cost_ps(a_, n);
    }
    for (TensorId t : read) sum += dropped_.contains(t) ? kKept_ps : kRead_ps;
    return sum;
  }

  const Program& p_;
  TensorExprTree& tree_;
  Arena& a_;
  Sharing& sharing_;
  const std::set<TensorId>& dropped_;
  std::span<const AxisRange> scope_;
};

}  // namespace

std::optional<StoredBranches> stored_branches(TensorExprTree& tree, TensorId tensor, const std::vector<AxisRange>& free,
                                              const Product& form) {
  const Arena& a = tree.arena();
  if (form.factors.size() != 1 || form.factors[0].halves != 2) return std::nullopt;
  const Node n = a[form.factors[0].atom];
  if (n.op != Op::select) return std::nullopt;
  StoredBranches s{tensor, free, n.arg(0), tree.form(n.arg(1)), tree.form(n.arg(2)), form.coefficient, false};
  if (auto q = question(a, s.condition)) {
    Product u = tree.form(q->second);
    const Product &above = q->first ? s.then : s.otherwise, &below = q->first ? s.otherwise : s.then;
    s.by_sign = s.factor >= 1 && grows_with(above, u) && stays_below(tree, below, u);
  }
  return s;
}

Id reuse_branches(const Program& p, TensorExprTree& tree, Sharing& sharing, const std::vector<StoredBranches>& stored,
                  const std::set<TensorId>& dropped, Id expression, std::span<const AxisRange> scope) {
  BranchReuse reuse(p, tree, sharing, dropped, scope);
  return rewrite(tree.arena(), expression, [&](Id id) {
    for (const StoredBranches& s : stored) {
      const Node& n = tree.arena()[id];
      if (n.op == Op::select && is_float(n.type)) id = reuse.select(s, id);
    }
    return id;
  });
}

}  // namespace xhat
