// isl's answers as expressions: affine forms with explicit integer divisions, pieces as nested selects.
#include "expr/index/affine_scope.h"

namespace xhat::affine {
namespace {

using BasicSet = Handle<isl_basic_set, isl_basic_set_copy, isl_basic_set_free>;
using Constraint = Handle<isl_constraint, isl_constraint_copy, isl_constraint_free>;

// A parameter's name is p and its monomial's number.
const Monomial& monomial_of(const std::vector<Monomial>& monomials, const char* name) {
  if (!name) throw GaveUp{};
  return monomials[std::stoul(name + 1)];
}

}  // namespace

std::vector<Monomial> Scope::parameters(const Set& s) const {
  std::vector<Monomial> r;
  const int n = count(isl_set_dim(s.get(), isl_dim_param));
  for (int i = 0; i < n; ++i)
    r.push_back(
        monomial_of(monomials_, isl_set_get_dim_name(s.get(), isl_dim_param, static_cast<unsigned>(i))));
  return r;
}

int Scope::position(const Set& s, Id atom) const {
  const auto names = parameters(s);
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] == Monomial{atom}) return static_cast<int>(i);
  return -1;
}

Poly Scope::poly_of(const Aff& aff) {
  if (!yes(isl_val_is_one(Val(isl_aff_get_denominator_val(aff.get())).get()))) throw GaveUp{};
  Poly p = Poly::constant(to_int64(Val(isl_aff_get_constant_val(aff.get()))));
  auto coefficient = [&](isl_dim_type type, int i) {
    return to_int64(Val(isl_aff_get_coefficient_val(aff.get(), type, i)));
  };
  const int params = count(isl_aff_dim(aff.get(), isl_dim_param));
  for (int i = 0; i < params; ++i) {
    const int64_t c = coefficient(isl_dim_param, i);
    if (c == 0) continue;
    const char* name = isl_aff_get_dim_name(aff.get(), isl_dim_param, static_cast<unsigned>(i));
    p = p + Poly::monomial(monomial_of(monomials_, name), c);
  }
  for (int i = 0; i < count(isl_aff_dim(aff.get(), isl_dim_in)); ++i)
    if (coefficient(isl_dim_in, i) != 0) throw GaveUp{};  // a set dimension: ours have none
  const int divs = count(isl_aff_dim(aff.get(), isl_dim_div));
  for (int i = 0; i < divs; ++i) {
    const int64_t c = coefficient(isl_dim_div, i);
    if (c == 0) continue;
    Aff inner(isl_aff_get_div(aff.get(), i));
    Val denominator(isl_aff_get_denominator_val(inner.get()));
    Aff numerator(isl_aff_scale_val(inner.give(), denominator.give()));
    const Poly quotient = floor_div(arena_, poly_of(numerator), to_int64(denominator));
    p = p + Poly::constant(c) * quotient;
  }
  return p;
}

Id Scope::condition_of(const Set& set) {
  auto collect_sets = [](isl_basic_set* b, void* out) {
    static_cast<std::vector<BasicSet>*>(out)->emplace_back(b);
    return isl_stat_ok;
  };
  auto collect_constraints = [](isl_constraint* c, void* out) {
    static_cast<std::vector<Constraint>*>(out)->emplace_back(c);
    return isl_stat_ok;
  };
  std::vector<BasicSet> parts;
  if (isl_set_foreach_basic_set(set.get(), collect_sets, &parts) < 0) throw GaveUp{};
  Id any = kNone;
  for (const BasicSet& part : parts) {
    std::vector<Constraint> constraints;
    if (isl_basic_set_foreach_constraint(part.get(), collect_constraints, &constraints) < 0) throw GaveUp{};
    Id all = kNone;
    for (const Constraint& c : constraints) {
      if (yes(isl_constraint_is_div_constraint(c.get()))) continue;
      const Poly f = poly_of(Aff(isl_constraint_get_aff(c.get())));
      Poly left, right;  // f = left - right, both without minus signs
      for (const auto& [m, k] : f.terms) (k > 0 ? left : right).add(m, k > 0 ? k : -k);
      const Op op = yes(isl_constraint_is_equality(c.get())) ? Op::eq : Op::le;
      const Id test = arena_.binary(op, expression(arena_, right), expression(arena_, left));
      all = all == kNone ? test : arena_.land(all, test);
    }
    if (all == kNone) return arena_.boolean(true);
    any = any == kNone ? all : arena_.binary(Op::lor, any, all);
  }
  return any == kNone ? arena_.boolean(false) : any;
}

Id Scope::expression_of(const PwAff& value) {
  using Piece = std::pair<Set, Aff>;
  auto collect = [](isl_set* s, isl_aff* f, void* out) {
    static_cast<std::vector<Piece>*>(out)->emplace_back(Set(s), Aff(f));
    return isl_stat_ok;
  };
  std::vector<Piece> pieces;
  if (isl_pw_aff_foreach_piece(value.get(), collect, &pieces) < 0 || pieces.empty()) throw GaveUp{};
  Id r = expression(arena_, poly_of(pieces.back().second));
  for (size_t i = pieces.size() - 1; i-- > 0;) {
    const Id here = expression(arena_, poly_of(pieces[i].second));
    if (here != r) r = arena_.select(condition_of(pieces[i].first), here, r);
  }
  return r;
}

}  // namespace xhat::affine
