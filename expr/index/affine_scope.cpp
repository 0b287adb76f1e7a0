// Expressions to isl, and what is known of the terms that isl cannot see into.
#include "expr/index/affine_scope.h"

#include <algorithm>
#include <utility>

#include "expr/core/error.h"
#include "expr/core/scalar.h"

namespace xhat::affine {
namespace {

bool is_comparison_of_integers(const Arena& a, const Node& n) { return is_integer(a[n.arg(0)].type); }

// Between data, one in the other: of a walk along a table (a = up[k,a] if …, eight times) isl would enumerate which were taken.
constexpr int kMostChoices = 3;

// Operations whose operands the translation looks into; all others are opaque.
bool looks_inside(const Arena& a, const Node& n) {
  switch (n.op) {
    case Op::neg:
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::div:
    case Op::mod:
    case Op::minimum:
    case Op::maximum:
    case Op::clamp:
    case Op::abs:
    case Op::relu: return is_integer(n.type);
    case Op::select: return is_integer(n.type) || n.type == DType::boolean;
    case Op::cast: return is_integer(a[n.arg(0)].type) && (is_integer(n.type) || n.type == DType::boolean);
    case Op::eq:
    case Op::ne: return is_comparison_of_integers(a, n) || a[n.arg(0)].type == DType::boolean;
    case Op::lt:
    case Op::le: return is_comparison_of_integers(a, n);
    case Op::land:
    case Op::lor:
    case Op::lnot: return true;
    default: return false;
  }
}

Interval range_of_type(DType t) {
  if (t == DType::i64) return {};
  return {Poly::constant(lowest_of(t)), Poly::constant(highest_of(t))};
}

}  // namespace

// isl_set_intersect looks for an integer point in every part of the result. Where there is but one part, whoever wants to
// know whether it is empty asks.
Set operator&(const Set& a, const Set& b) {
  const Space x(isl_set_get_space(a.get())), y(isl_set_get_space(b.get()));
  const bool one_part = isl_set_n_basic_set(a.get()) == 1 && isl_set_n_basic_set(b.get()) == 1;
  if (!one_part || !yes(isl_space_is_equal(x.get(), y.get()))) return Set(isl_set_intersect(a.give(), b.give()));
  isl_basic_set *p = isl_set_simple_hull(a.give()), *q = isl_set_simple_hull(b.give());
  return Set(isl_set_from_basic_set(isl_basic_set_intersect(p, q)));
}

Scope::Scope(Arena& a, unsigned long operations)
    : arena_(a),
      context_(operations),
      space_(isl_space_set_alloc(context_.get(), 0, 0)),
      facts_(universe()) {}

Set Scope::universe() const { return Set(isl_set_universe(space_.give())); }

Set Scope::inside(const AxisRange& range) {
  const Poly x = poly(range.axis);
  return le(poly(range.begin), x) & lt(x, poly(range.end));
}

// ---- values
// ---------------------------------------------------------------------------------------------------------

void Scope::know_bounds(const Poly& term, const Interval& bounds) {
  if (bounds.lo) nonnegative_facts_.push_back(term - *bounds.lo);
  if (bounds.hi) nonnegative_facts_.push_back(*bounds.hi - term);
}

// What isl has not been told yet. Making a fact may meet terms of which more is known.
Set Scope::facts() {
  while (!nonnegative_facts_.empty() || !division_facts_.empty()) {
    for (const Poly& p : std::exchange(nonnegative_facts_, {})) facts_ = facts_ & nonnegative(p);
    for (Id id : std::exchange(division_facts_, {})) facts_ = facts_ & division_fact(id);
  }
  return facts_;
}

// Of an atom e / d or e % d with a symbolic divisor.
Set Scope::division_fact(Id id) {
  const Poly atom = Poly::atom(id), d = entries_.at(arena_[id].arg(1)).poly, nil;
  if (arena_[id].op == Op::div) return ne(d, nil) | zero(atom);
  const Set positive = lt(nil, d) & le(nil, atom) & lt(atom, d);
  if (surely_nonnegative(d - Poly::constant(1))) return positive;
  return (zero(d) & zero(atom)) | positive | (lt(d, nil) & lt(d, atom) & le(atom, nil));
}

size_t Scope::parameter(const Monomial& m) {
  const auto [it, fresh] = parameters_.try_emplace(m, monomials_.size());
  if (!fresh) return it->second;
  Name name(isl_id_alloc(ctx(), ("p" + std::to_string(monomials_.size())).c_str(), nullptr));
  monomials_.push_back(m);
  space_ = Space(isl_space_add_param_id(space_.give(), name.give()));
  return it->second;
}

// Collects what is known of a term that is met for the first time.
void Scope::meet(const Monomial& m) {
  if (m.empty() || parameters_.contains(m)) return;
  for (Id atom : m) translate(atom);
  if (m.size() == 1 || parameters_.contains(m)) return;
  parameter(m);
  const Interval bounds = interval_of_monomial(m);
  if (!bounds.lo || *bounds.lo != Poly::monomial(m, 1)) return know_bounds(Poly::monomial(m, 1), bounds);
  if (surely_nonnegative(*bounds.lo)) nonnegative_facts_.push_back(Poly::monomial(m, 1));
  for (size_t i = 0; i < m.size(); ++i) {  // with H >= 1 and W >= 0: W <= H*W
    Monomial smaller = m;
    smaller.erase(smaller.begin() + static_cast<std::ptrdiff_t>(i));
    if (positive_.contains(m[i]) && surely_nonnegative(Poly::monomial(smaller, 1)))
      nonnegative_facts_.push_back(Poly::monomial(m, 1) - Poly::monomial(smaller, 1));
  }
}

// p without its structural atoms. One function with its coefficients set, since adding isl's functions term by term took
// most of the time of a question.
Aff Scope::linear(const Poly& p, std::vector<Part>& structural) {
  std::vector<std::pair<size_t, int64_t>> terms;
  for (const auto& [m, c] : p.terms) {
    meet(m);
    if (m.size() == 1 && structural_.contains(m[0]))
      structural.emplace_back(m[0], c);
    else if (!m.empty())
      terms.emplace_back(parameter(m), c);
  }
  auto number = [&](int64_t v) { return isl_val_int_from_si(ctx(), v); };
  isl_aff* sum = isl_aff_zero_on_domain_space(space_.give());
  sum = isl_aff_set_constant_val(sum, number(p.constant_term()));
  for (auto [k, c] : terms) sum = isl_aff_set_coefficient_val(sum, isl_dim_param, static_cast<int>(k), number(c));
  return Aff(sum);
}

PwAff Scope::value(const Poly& p) {
  std::vector<Part> structural;
  PwAff sum(isl_pw_aff_from_aff(linear(p, structural).give()));
  for (const auto& [atom, c] : structural) {
    Val factor(isl_val_int_from_si(ctx(), c));
    sum = sum + PwAff(isl_pw_aff_scale_val(structure(atom).give(), factor.give()));
  }
  return sum;
}

Set Scope::nonnegative(const Poly& p) {
  std::vector<Part> structural;
  const Aff f = linear(p, structural);
  if (!structural.empty()) return Set(isl_pw_aff_nonneg_set(value(p).give()));
  return Set(isl_set_from_basic_set(isl_basic_set_from_constraint(isl_inequality_from_aff(f.give()))));
}

Set Scope::zero(const Poly& p) {
  std::vector<Part> structural;
  const Aff f = linear(p, structural);
  if (!structural.empty()) return Set(isl_pw_aff_zero_set(value(p).give()));
  return Set(isl_set_from_basic_set(isl_basic_set_from_constraint(isl_equality_from_aff(f.give()))));
}

const Poly& Scope::poly(Id id) {
  translate(id);
  return entries_.at(id).poly;
}

Condition Scope::condition(Id id) {
  translate(id);
  return *entries_.at(id).condition;
}

bool Scope::has_opaque(Id id) {
  const PwAff v = value(poly(id));
  const int n = count(isl_pw_aff_dim(v.get(), isl_dim_param));
  for (int i = 0; i < n; ++i) {
    if (!yes(isl_pw_aff_involves_dims(v.get(), isl_dim_param, static_cast<unsigned>(i), 1))) continue;
    Name name(isl_pw_aff_get_dim_id(v.get(), isl_dim_param, static_cast<unsigned>(i)));
    const Monomial& m = monomials_[std::stoul(isl_id_get_name(name.get()) + 1)];
    if (m.size() > 1 || (arena_[m[0]].op != Op::axis && arena_[m[0]].op != Op::dim)) return true;
  }
  return false;
}

// ---- translation
// ----------------------------------------------------------------------------------------------------

void Scope::translate(Id root) {
  if (entries_.contains(root)) return;
  const std::vector<Id> ids = reachable(arena_, root);
  std::unordered_set<Id> needed{root};
  for (auto it = ids.rbegin(); it != ids.rend(); ++it) {
    if (!needed.contains(*it) || !looks_inside(arena_, arena_[*it])) continue;
    for (Id x : arena_[*it].args()) needed.insert(x);
  }
  for (Id id : ids) {
    if (!needed.contains(id) || entries_.contains(id)) continue;
    if (arena_[id].type == DType::boolean) {
      Entry e;
      e.condition = translate_bool(id);
      entries_.emplace(id, std::move(e));
    } else if (is_integer(arena_[id].type)) {
      Entry e = translate_integer(id);
      if (looks_inside(arena_, arena_[id]) && e.poly != Poly::atom(id))
        for (Id x : arena_[id].args()) e.choices = std::max(e.choices, entries_.at(x).choices);
      entries_.emplace(id, std::move(e));
    }
  }
}

Scope::Data Scope::data_of(std::span<const Id> args) {
  Data d = Data::none;
  for (Id x : args)
    if (auto it = entries_.find(x); it != entries_.end()) d = std::max(d, it->second.data);
  return d;
}

Scope::Entry Scope::opaque(Id id, Interval bounds, Data data) {
  parameter({id});
  know_bounds(Poly::atom(id), bounds);
  if (bounds.lo && surely_nonnegative(*bounds.lo)) nonnegative_.insert(id);
  const bool fixed = data == Data::none && arena_[id].free_axes().empty();
  if (fixed) bounds = {Poly::atom(id), Poly::atom(id)};
  intervals_[id] = std::move(bounds);
  return {Poly::atom(id), data, {}};
}

Scope::Entry Scope::structural(Id id, Interval bounds, Data data) {
  structural_.emplace(id, std::nullopt);
  if (bounds.lo && surely_nonnegative(*bounds.lo)) nonnegative_.insert(id);
  const bool fixed = data == Data::none && arena_[id].free_axes().empty();
  if (fixed) bounds = {Poly::atom(id), Poly::atom(id)};
  intervals_[id] = std::move(bounds);
  return {Poly::atom(id), data, {}};
}

// e / d and e % d, both flooring; 0 where d is 0.
Scope::Entry Scope::divided(Id id) {
  const Node& n = arena_[id];
  const Poly e = entries_.at(n.arg(0)).poly, d = entries_.at(n.arg(1)).poly;
  const auto [same, fresh] = divisions_.try_emplace({n.op, e, d}, id);
  if (!fresh) return entries_.at(same->second);
  const Data data = data_of(n.args());
  const Interval in = interval(e);
  const bool numerator_nonnegative = in.lo && surely_nonnegative(*in.lo);
  const bool positive = surely_nonnegative(d - Poly::constant(1));
  Interval out;
  if (n.op == Op::mod) {
    if (surely_nonnegative(d)) out.lo = Poly{};
    const Interval by = interval(d);
    if (positive && by.hi) out.hi = *by.hi - Poly::constant(1);
  } else if (positive && interval(d).lo == d) {
    if (in.lo) {
      const auto [q, r] = divide(*in.lo, d);
      if (surely_nonnegative(r))
        out.lo = q;
      else if (surely_nonnegative(r + d))
        out.lo = q - Poly::constant(1);
      else if (numerator_nonnegative)
        out.lo = Poly{};
    }
    if (in.hi) {
      const auto [q, r] = divide(*in.hi + Poly::constant(1), d);
      if (surely_nonnegative(-r))
        out.hi = q - Poly::constant(1);
      else if (surely_nonnegative(d - r))
        out.hi = q;
      else if (numerator_nonnegative)
        out.hi = in.hi;
    }
  } else if (numerator_nonnegative && surely_nonnegative(d)) {
    out = {Poly{}, in.hi};
  }
  if (auto c = d.as_constant(); c && *c != 0) return structural(id, out, data);
  const Entry entry = opaque(id, out, data);
  division_facts_.push_back(id);
  if (numerator_nonnegative && surely_nonnegative(d)) nonnegative_facts_.push_back(e - Poly::atom(id));
  return entry;
}

// Sizes and positions are taken to fit in i32 where the user casts them so; data may not, so casts of it
// wrap.
Scope::Entry Scope::converted(Id id) {
  const Node& n = arena_[id];
  const Entry& from = entries_.at(n.arg(0));
  const DType source = arena_[n.arg(0)].type;
  const bool widens = lowest_of(n.type) <= lowest_of(source) && highest_of(n.type) >= highest_of(source);
  if (widens || (n.type == DType::i32 && from.data == Data::none)) return {from.poly, from.data, {}};
  return opaque(id, range_of_type(n.type), n.type == DType::i64 ? Data::wide : Data::narrow);
}

Scope::Entry Scope::translate_integer(Id id) {
  const Node& n = arena_[id];
  if (n.op == Op::constant) return {Poly::constant(n.integer), Data::none, {}};
  if (n.op == Op::dim) return opaque(id, {Poly{}, std::nullopt});
  if (n.op == Op::axis) {
    intervals_.try_emplace(id);
    return {Poly::atom(id), Data::none, {}};
  }
  const Data own = n.type == DType::i64 ? Data::wide : Data::narrow;
  if (!looks_inside(arena_, n)) return opaque(id, range_of_type(n.type), own);
  if (n.op == Op::cast) return converted(id);
  const Data data = n.op == Op::select ? data_of(n.args().subspan(1)) : data_of(n.args());
  auto poly_at = [&](size_t i) -> const Poly& { return entries_.at(n.arg(i)).poly; };
  auto extreme = [&](Op op, const Interval& x, const Interval& y) { return interval_of_extreme(op, x, y); };
  // Arithmetic may wrap: on data of its own width always, in u8 and u32 already below zero.
  const bool wraps =
      data == Data::wide || (n.type != DType::i64 && (data != Data::none || n.type != DType::i32));
  const Interval zero{Poly{}, Poly{}};
  switch (n.op) {
    case Op::neg:
    case Op::add:
    case Op::sub:
    case Op::mul:
      if (wraps) return opaque(id, range_of_type(n.type), own);
      try {
        if (n.op == Op::neg) return {-poly_at(0), data, {}};
        if (n.op == Op::add) return {poly_at(0) + poly_at(1), data, {}};
        if (n.op == Op::sub) return {poly_at(0) - poly_at(1), data, {}};
        return {poly_at(0) * poly_at(1), data, {}};
      } catch (const GaveUp&) {
        return opaque(id, {}, data);
      }
    case Op::div:
    case Op::mod: return divided(id);
    case Op::minimum:
    case Op::maximum:
      return structural(id, extreme(n.op, interval(poly_at(0)), interval(poly_at(1))), data);
    case Op::relu: return structural(id, extreme(Op::maximum, interval(poly_at(0)), zero), data);
    case Op::clamp: {  // min(max(x, low), high)
      const Interval i = extreme(Op::maximum, interval(poly_at(0)), interval(poly_at(1)));
      return structural(id, extreme(Op::minimum, i, interval(poly_at(2))), data);
    }
    case Op::abs: {
      if (wraps) return opaque(id, range_of_type(n.type), own);
      const Interval i = extreme(Op::select, interval(poly_at(0)), interval(-poly_at(0)));
      return structural(id, {Poly{}, i.hi}, data);
    }
    case Op::select: {
      const Condition c = condition(n.arg(0));
      const Interval i = extreme(Op::select, interval(poly_at(1)), interval(poly_at(2)));
      const int choices = data == Data::none ? 0 : 1 + std::max(entries_.at(n.arg(1)).choices, entries_.at(n.arg(2)).choices);
      if (choices > kMostChoices || !is_subset(c.may, c.must)) return opaque(id, i, own);
      Entry made = structural(id, i, data);
      made.choices = choices;
      return made;
    }
    default: return opaque(id, range_of_type(n.type), own);
  }
}

// isl's form of a structural atom.
PwAff Scope::structure(Id id) {
  if (const auto& made = structural_.at(id)) return *made;
  const Node& n = arena_[id];
  auto poly_at = [&](size_t i) -> const Poly& { return entries_.at(n.arg(i)).poly; };
  auto at = [&](size_t i) { return value(poly_at(i)); };
  auto smaller = [](const PwAff& x, const PwAff& y) { return PwAff(isl_pw_aff_min(x.give(), y.give())); };
  auto larger = [](const PwAff& x, const PwAff& y) { return PwAff(isl_pw_aff_max(x.give(), y.give())); };
  auto form = [&]() -> PwAff {
    switch (n.op) {
      case Op::div:
      case Op::mod: {
        const int64_t c = *poly_at(1).as_constant();
        Val by(isl_val_int_from_si(ctx(), c < 0 ? -c : c)), minus(isl_val_int_from_si(ctx(), -c));  // isl wants by positive
        const PwAff numerator = value(c < 0 ? -poly_at(0) : poly_at(0));
        const PwAff quotient(isl_pw_aff_floor(isl_pw_aff_scale_down_val(numerator.give(), by.give())));
        if (n.op == Op::div) return quotient;
        return at(0) + PwAff(isl_pw_aff_scale_val(quotient.give(), minus.give()));
      }
      case Op::minimum: return smaller(at(0), at(1));
      case Op::maximum: return larger(at(0), at(1));
      case Op::relu: return larger(at(0), value(Poly{}));
      case Op::clamp: return smaller(larger(at(0), at(1)), at(2));
      case Op::abs: return larger(at(0), value(-poly_at(0)));
      case Op::select: {
        const Set where = condition(n.arg(0)).must;
        PwAff then(isl_pw_aff_intersect_domain(at(1).give(), where.give()));
        PwAff other(isl_pw_aff_intersect_domain(at(2).give(), complement(where).give()));
        return PwAff(isl_pw_aff_union_add(then.give(), other.give()));
      }
      default: throw Bug("affine: no structural atom");
    }
  };
  const PwAff made(isl_pw_aff_coalesce(form().give()));
  structural_.at(id) = made;
  return made;
}

Condition Scope::translate_bool(Id id) {
  const Node& n = arena_[id];
  const Set all = universe(), nothing(isl_set_empty(space_.give()));
  auto exactly = [](const Set& s) { return Condition{s, s}; };
  auto both = [](const Condition& x, const Condition& y) {
    return Condition{x.must & y.must, x.may & y.may};
  };
  auto either = [](const Condition& x, const Condition& y) {
    return Condition{x.must | y.must, x.may | y.may};
  };
  auto opposite = [](const Condition& x) { return Condition{complement(x.may), complement(x.must)}; };
  auto at = [&](size_t i) -> const Condition& { return *entries_.at(n.arg(i)).condition; };
  auto poly_at = [&](size_t i) -> const Poly& { return entries_.at(n.arg(i)).poly; };
  if (n.op == Op::constant) return exactly(n.integer != 0 ? all : nothing);
  if (!looks_inside(arena_, n)) return {nothing, all};
  switch (n.op) {
    case Op::land: return both(at(0), at(1));
    case Op::lor: return either(at(0), at(1));
    case Op::lnot: return opposite(at(0));
    case Op::lt: return exactly(lt(poly_at(0), poly_at(1)));
    case Op::le: return exactly(le(poly_at(0), poly_at(1)));
    case Op::select: return either(both(at(0), at(1)), both(opposite(at(0)), at(2)));
    case Op::cast: return exactly(ne(poly_at(0), Poly{}));
    case Op::eq:
    case Op::ne: {
      if (is_comparison_of_integers(arena_, n))
        return exactly(n.op == Op::eq ? eq(poly_at(0), poly_at(1)) : ne(poly_at(0), poly_at(1)));
      const Condition same = either(both(at(0), at(1)), both(opposite(at(0)), opposite(at(1))));
      return n.op == Op::eq ? same : opposite(same);
    }
    default: return {nothing, all};
  }
}

}  // namespace xhat::affine
