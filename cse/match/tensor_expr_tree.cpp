#include "cse/match/tensor_expr_tree.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_set>

#include "expr/core/conditions.h"

namespace xhat {
namespace {

// Sums longer than this are not flattened further: a chain x0+x1+… of n terms would cost n² otherwise.
constexpr size_t kLongestSum = 24;
// Of a product that stands whole in a product: beyond, it is an atom.
constexpr size_t kLongestProduct = 32;
constexpr int kHighestPower = 8;  // pow(a, 9) stays a function

bool by_factors(const Product& x, const Product& y) {
  // Numbers last: 1 - y*y reads better than the other way round when the sign is pulled out.
  if (x.factors.empty() != y.factors.empty()) return y.factors.empty();
  return x.factors < y.factors;
}

// The factors all terms share, with the exponent nearest to zero; exponents of both signs share nothing.
std::vector<Factor> shared_factors(const std::vector<Product>& terms) {
  std::vector<Factor> common = terms[0].factors;
  for (const Product& t : terms) {
    std::vector<Factor> kept;
    for (const Factor& f : common) {
      auto it = std::ranges::lower_bound(t.factors, f.atom, {}, &Factor::atom);
      if (it == t.factors.end() || it->atom != f.atom || (it->halves > 0) != (f.halves > 0)) continue;
      kept.push_back({f.atom, f.halves > 0 ? std::min(f.halves, it->halves) : std::max(f.halves, it->halves)});
    }
    common = std::move(kept);
  }
  return common;
}

// The same bits with the other sign.
Id negated(Arena& a, Id id) {
  const Node n = a[id];
  if (n.op == Op::neg) return n.arg(0);
  if (n.op == Op::sub) return a.sub(n.arg(1), n.arg(0));
  if (n.op == Op::mul || n.op == Op::div) {
    const size_t of = a[n.arg(0)].op == Op::constant ? 1 : 0;
    std::vector<Id> args(n.args().begin(), n.args().end());
    args[of] = negated(a, args[of]);
    return a.with_args(id, args);
  }
  return a.unary(Op::neg, id);
}

}  // namespace

bool rounds_to_whole(Op op) { return op == Op::floor || op == Op::ceil || op == Op::round || op == Op::trunc; }

bool jumps(Op op) {
  return rounds_to_whole(op) || op == Op::mod || op == Op::fmod || op == Op::remainder || op == Op::copysign || op == Op::sign;
}

bool negligible(double sum, double largest) { return std::abs(sum) <= 1e-13 * std::abs(largest); }

const std::vector<Product>* TensorExprTree::terms(Id atom) const {
  auto it = sums_.find(atom);
  return it == sums_.end() ? nullptr : &it->second;
}

const Product* TensorExprTree::factors(Id atom) const {
  auto it = long_.find(atom);
  return it == long_.end() ? nullptr : &it->second;
}

Product TensorExprTree::as_atom(DType type, const Product& p) {
  if (p.factors.size() < 2) return p;
  Id id = to_expression({1, p.factors}, type);
  long_.emplace(id, Product{1, p.factors});
  return {p.coefficient, {{id, 2}}};
}

Product TensorExprTree::joined(DType type, const Product& x, const Product& y) {
  if (x.factors.size() + y.factors.size() <= kLongestProduct) return multiply(x, y);
  if (x.factors.size() < y.factors.size()) return joined(type, y, x);
  Product whole = as_atom(type, x);
  return multiply(whole, y.factors.size() < kLongestProduct ? y : as_atom(type, y));
}

void TensorExprTree::put(Product& p, Id atom, int halves) {
  auto it = std::ranges::lower_bound(p.factors, atom, {}, &Factor::atom);
  if (it != p.factors.end() && it->atom == atom) {
    it->halves += halves;
    if (it->halves == 0) p.factors.erase(it);
  } else if (halves != 0) {
    p.factors.insert(it, {atom, halves});
  }
}

void TensorExprTree::multiply_in(Product& p, const Factor& f) {
  if (meets_opposite(p, f)) return;
  put(p, f.atom, f.halves);
  // A product kept under a root: whole powers of it leave the root.
  auto kept = kept_.find(f.atom);
  if (kept == kept_.end()) return;
  auto now = std::ranges::lower_bound(p.factors, f.atom, {}, &Factor::atom);
  if (now == p.factors.end() || now->atom != f.atom || std::abs(now->halves) < 2) return;
  int whole = now->halves / 2 * 2;
  put(p, f.atom, -whole);
  multiply_in(p, Product(kept->second), whole);
}

void TensorExprTree::multiply_in(Product& p, const Product& y, int halves) {
  if (p.is_zero() || (y.is_zero() && halves > 0)) {
    p = {0, {}};
    return;
  }
  if (halves % 2 != 0) return multiply_in(p, root(y, halves));
  p.coefficient *= halves == 2 ? y.coefficient : std::pow(y.coefficient, halves / 2);
  for (const Factor& f : y.factors) multiply_in(p, Factor{f.atom, f.halves * (halves / 2)});
}

Product TensorExprTree::multiply(const Product& x, const Product& y) {
  Product r = x;
  multiply_in(r, y);
  return r;
}

Product TensorExprTree::power(const Product& x, int halves) {
  if (halves == 0) return {1, {}};
  if (halves == 2) return x;
  if (halves % 2 != 0) return root(x, halves);
  Product r{std::pow(x.coefficient, halves / 2), {}};
  for (const Factor& f : x.factors) multiply_in(r, Factor{f.atom, f.halves * (halves / 2)});
  return r;
}

bool TensorExprTree::positive(Id atom) const {
  const Node& n = a_[atom];
  if (n.op == Op::cast) return n.axes_count == 0 && (a_[n.arg(0)].op == Op::dim || positive(n.arg(0)));
  return n.op == Op::exp || n.op == Op::sigmoid || n.op == Op::softplus;
}

// sqrt(a*b) is sqrt(a)*sqrt(b) only for factors that cannot be negative.
Product TensorExprTree::root(const Product& x, int halves) {
  Product outside{1, {}};
  Product inside{x.coefficient, {}};
  for (const Factor& f : x.factors) {
    if (positive(f.atom))
      put(outside, f.atom, f.halves * halves / (f.halves % 2 == 0 ? 2 : 1));
    else
      inside.factors.push_back(f);
  }
  for (const Factor& f : x.factors)
    if (positive(f.atom) && f.halves % 2 != 0) return power(atom(to_expression(x, a_[f.atom].type)), halves);
  if (inside.coefficient > 0) {
    outside.coefficient = std::pow(inside.coefficient, halves / 2.0);
    inside.coefficient = 1;
  }
  if (inside.factors.empty() && inside.coefficient == 1) return outside;
  if (inside.coefficient == 1 && !inside.factors.empty() && mostly_divides(inside)) {
    for (Factor& f : inside.factors) f.halves = -f.halves;
    halves = -halves;
  }
  if (inside.factors.size() == 1 && inside.factors[0].halves == 2 && inside.coefficient == 1) {
    put(outside, inside.factors[0].atom, halves);
    return outside;
  }
  if (inside.factors.empty()) return {std::nan(""), {}};  // sqrt(-exp(x)): compute() keeps it as an atom
  Id kept = to_expression(inside, a_[inside.factors[0].atom].type);
  if (Product& known = forms_[kept]; known != inside) known = inside;
  kept_[kept] = inside;
  return multiply(outside, {1, {{kept, halves}}});
}

Product TensorExprTree::add(DType type, std::vector<Product> given) {
  for (;;) {
    std::vector<Product> flat;
    for (Product& t : given) {
      const std::vector<Product>* inner = t.factors.size() == 1 && t.factors[0].halves == 2 ? terms(t.factors[0].atom) : nullptr;
      if (inner && inner->size() + given.size() <= kLongestSum) {
        for (Product u : *inner) {
          u.coefficient *= t.coefficient;
          flat.push_back(std::move(u));
        }
      } else if (!t.is_zero()) {
        flat.push_back(std::move(t));
      }
    }
    std::ranges::stable_sort(flat, by_factors);
    std::vector<Product> collected;
    for (size_t i = 0; i < flat.size();) {
      double sum = 0, largest = 0;
      size_t j = i;
      for (; j < flat.size() && flat[j].factors == flat[i].factors; ++j) {
        sum += flat[j].coefficient;
        largest = std::max(largest, std::abs(flat[j].coefficient));
      }
      if (!negligible(sum, largest)) collected.push_back({sum, flat[i].factors});
      i = j;
    }
    if (collected.empty()) return {0, {}};
    if (collected.size() > 1 && (choose_once(type, collected) || divide_once(collected) || compare_once(type, collected) ||
                                 reflect_once(collected) || cancel_once(type, collected))) {
      given = std::move(collected);
      continue;
    }
    if (collected.size() == 1) return collected[0];
    Product outside{1, shared_factors(collected)};
    if (outside.factors.empty()) return sum_of(type, std::move(collected));
    Product inverse = outside;
    for (Factor& f : inverse.factors) f.halves = -f.halves;
    for (Product& t : collected) t = multiply(t, inverse);
    Product rest = add(type, std::move(collected));
    return multiply(outside, rest);
  }
}

// Distinct terms without a common factor. Only the sign and a size that all coefficients share are pulled
// out, so that var + 1e-5 keeps its number.
Product TensorExprTree::sum_of(DType type, std::vector<Product> terms) {
  // Which term is positive must not depend on names; x - s/N reads better than s/N - x.
  auto rank = [&](const Product& t) { return std::tuple(t.is_number(), t.factors.size(), key(t)); };
  // Of x[i] - x[j] either may be; the same one in all that goes over the same axes.
  auto stands_before = [&](const Product& t, const Product& other) {
    const auto of_t = rank(t), of_other = rank(other);
    return of_t != of_other ? of_t < of_other : free_axes(t) < free_axes(other);
  };
  const Product* leading = &terms[0];
  for (const Product& t : terms)
    if (stands_before(t, *leading)) leading = &t;
  double scale = leading->coefficient < 0 ? -1 : 1;
  double size = std::abs(terms[0].coefficient);
  if (std::ranges::all_of(terms, [&](const Product& t) { return std::abs(t.coefficient) == size; })) scale *= size;
  for (Product& t : terms) t.coefficient = settled(t.coefficient / scale);
  Id id = sum_expression(type, terms);
  if (sums_.emplace(id, std::move(terms)).second) forms_[id] = atom(id);
  return {scale, {{id, 2}}};
}

Product TensorExprTree::form(Id expression) { return known_form(expression); }

const Product& TensorExprTree::known_form(Id expression) {
  if (auto it = forms_.find(expression); it != forms_.end()) return it->second;
  // Operands before what they are operands of, down to those that are known: what is asked of a large program grows node by node.
  std::vector<Id> unknown{expression};
  std::unordered_set<Id> met{expression};
  for (size_t k = 0; k < unknown.size(); ++k)
    for (Id x : a_[unknown[k]].args())
      if (!forms_.contains(x) && met.insert(x).second) unknown.push_back(x);
  std::ranges::sort(unknown);
  for (Id id : unknown) {
    if (!is_float(a_[id].type) || forms_.contains(id)) continue;
    Product p = compute(id);
    for (const Factor& f : p.factors) key(f.atom), shape(f.atom);
    forms_.emplace(id, std::move(p));
  }
  return forms_.at(expression);
}

Id TensorExprTree::canonical(Id expression) {
  if (!is_float(a_[expression].type)) return expression;
  return to_expression(form(expression), a_[expression].type);
}

// A number of literals and dims, whatever its casts: N*H*W is three atoms.
Product TensorExprTree::from_dims(DType type, Id id, int depth) {
  const Node n = a_[id];
  if (n.op == Op::constant && is_integer(n.type)) return {static_cast<double>(n.integer), {}};
  if (n.op == Op::constant && is_float(n.type) && std::isfinite(n.value)) return {n.value, {}};
  if (depth > 0) {
    auto sub = [&](size_t i) { return from_dims(type, n.arg(i), depth - 1); };
    if (n.op == Op::mul) return multiply(sub(0), sub(1));
    if (n.op == Op::add) return add(type, {sub(0), sub(1)});
    if (n.op == Op::sub) return add(type, {sub(0), multiply({-1, {}}, sub(1))});
    if (n.op == Op::neg) return multiply({-1, {}}, sub(0));
    if (n.op == Op::cast && is_float(n.type)) return sub(0);
    if (n.op == Op::div && is_float(n.type))
      if (Product below = sub(1); !below.is_zero()) return multiply(sub(0), power(below, -2));
  }
  // The language evaluates dims beside floats in f64; written like that it also prints as the plain dim.
  Id wide = is_float(n.type) ? id : a_.cast(DType::f64, id);
  return atom(type == a_[wide].type ? wide : a_.cast(type, wide));
}

// The operands' forms are known.
Product TensorExprTree::compute(Id id) {
  const Node n = a_[id];
  auto sub = [&](size_t i) { return forms_.at(n.arg(i)); };
  // f(-x) is f(x) or -f(x) where f is even or odd: what stands below it has a positive coefficient.
  const Parity parity = info(n.op).parity;
  auto opaque = [&] {
    std::vector<Id> args;
    double sign = 1;
    for (Id x : n.args()) {
      Product p = is_float(a_[x].type) ? sub(args.size()) : Product{};
      if (parity != Parity::none && p.coefficient < 0) {
        p.coefficient = -p.coefficient;
        if (parity == Parity::odd) sign = -sign;
      }
      p.coefficient = settled(p.coefficient);
      args.push_back(is_float(a_[x].type) ? to_expression(p, a_[x].type) : x);
    }
    Id made = a_.with_args(id, args);
    if (made != id) forms_.emplace(made, atom(made));
    note_opposite(made);
    return multiply({sign, {}}, atom(made));
  };
  constexpr int kDepth = 64;  // of integer arithmetic under a cast
  switch (n.op) {
    case Op::constant: return std::isfinite(n.value) ? Product{n.value, {}} : atom(id);
    case Op::cast: {
      bool number = n.axes_count == 0 && a_[n.arg(0)].type != DType::boolean;
      for (Id x : number ? reachable(a_, n.arg(0)) : std::vector<Id>{}) number = number && !is_read(a_[x].op) && !is_reduction(a_[x].op);
      return number ? from_dims(n.type, n.arg(0), kDepth) : opaque();
    }
    case Op::select: {
      if (const Id plain = with_plain_bounds(a_, n.arg(0)); plain != n.arg(0)) return form(a_.select(plain, n.arg(1), n.arg(2)));
      const Node condition = a_[n.arg(0)];
      if (is_true(a_, n.arg(0)) ||
          (condition.op == Op::eq && condition.arg(0) == condition.arg(1) && is_integer(a_[condition.arg(0)].type)))
        return sub(1);
      if (sub(1) == sub(2)) return sub(1);
      if (const Product there = where_equal(condition, sub(1)); there != sub(1))
        return form(a_.select(n.arg(0), to_expression(there, n.type), n.arg(2)));
      // if c then a*(if c then b else 0) else d
      Product chosen{sub(1).coefficient, {}};
      for (const Factor& f : sub(1).factors) {
        const Node guard = a_[f.atom];
        const bool again = guard.op == Op::select && guard.arg(0) == n.arg(0) && f.halves > 0;
        multiply_in(chosen, again ? forms_.at(guard.arg(1)) : atom(f.atom), f.halves);
      }
      if (chosen == sub(1)) return opaque();
      return form(a_.select(n.arg(0), to_expression(chosen, n.type), n.arg(2)));
    }
    case Op::neg: return multiply({-1, {}}, sub(0));
    case Op::add: return add(n.type, {sub(0), sub(1)});
    case Op::sub: return add(n.type, {sub(0), multiply({-1, {}}, sub(1))});
    case Op::mul: return joined(n.type, sub(0), sub(1));
    case Op::div: return sub(1).is_zero() ? atom(id) : joined(n.type, sub(0), power(sub(1), -2));
    case Op::sqrt:
    case Op::rsqrt: {
      Product inside = sub(0);
      if (inside.is_number() && inside.coefficient <= 0) return atom(id);
      Product r = power(inside, n.op == Op::sqrt ? 1 : -1);
      return r.coefficient == r.coefficient ? r : opaque();  // sqrt(-exp(x))
    }
    case Op::pow: {
      Product exponent = sub(1);
      double halves = 2 * exponent.coefficient;
      bool small = exponent.is_number() && halves == std::floor(halves) && std::abs(halves) <= 2 * kHighestPower;
      Product base = sub(0);
      if (!small || base.is_number()) return opaque();
      Product r = power(base, static_cast<int>(halves));
      return r.coefficient == r.coefficient ? r : opaque();
    }
    case Op::stop_gradient: return sub(0);
    case Op::read: return atom(id);
    default:
      if (is_reduction(n.op)) return atom(id);
      if (const auto sum = n.op == Op::log ? without_exponentials(n.type, sub(0)) : std::nullopt) return *sum;
      if (!jumps(n.op)) return opaque();
      if (parity != Parity::odd || sub(0).coefficient >= 0) return atom(id);
      return multiply({-1, {}}, atom(a_.unary(n.op, negated(a_, n.arg(0)))));
  }
}

std::optional<std::vector<Product>> TensorExprTree::expand(const Product& p, size_t limit) {
  std::vector<Product> result = {{p.coefficient, {}}};
  auto times = [&](const std::vector<Product>& right) {
    std::map<std::vector<Factor>, std::pair<double, double>> collected;  // sum, largest
    for (const Product& x : result)
      for (const Product& y : right) {
        Product z = multiply(x, y);
        auto& [sum, largest] = collected[z.factors];
        sum += z.coefficient;
        largest = std::max(largest, std::abs(z.coefficient));
      }
    result.clear();
    for (auto& [factors, number] : collected)
      if (!negligible(number.first, number.second)) result.push_back({number.first, factors});
  };
  for (const Factor& f : p.factors) {
    const std::vector<Product>* inner = f.halves > 0 ? terms(f.atom) : nullptr;
    int whole = inner ? f.halves / 2 : 0;
    for (int i = 0; i < whole; ++i) {
      std::vector<Product> right;
      for (const Product& t : *inner) {
        auto opened = expand(t, limit);
        if (!opened) return std::nullopt;
        right.insert(right.end(), opened->begin(), opened->end());
      }
      if (result.size() * right.size() > limit) return std::nullopt;
      times(right);
    }
    if (f.halves != 2 * whole) times({{1, {{f.atom, f.halves - 2 * whole}}}});
  }
  return result;
}

// --- back to expressions ---

Id TensorExprTree::raised(Id atom, int halves) {
  constexpr int kMultiplied = 4;  // x^4 is two multiplications, x^5 a call
  Id value = kNone;
  int whole = halves / 2;
  if (whole > kMultiplied)
    value = a_.binary(Op::pow, atom, a_.constant(a_[atom].type, whole));
  else if (whole > 0) {
    value = whole >= 2 ? a_.mul(atom, atom) : atom;
    if (whole == 3) value = a_.mul(value, atom);
    if (whole == 4) value = a_.mul(value, value);
  }
  if (halves % 2 == 0) return value;
  Id half = a_.unary(Op::sqrt, atom);
  return value == kNone ? half : a_.mul(value, half);
}

Id TensorExprTree::to_expression(const Product& given, DType type) {
  Product p = given;
  if (p.is_number()) return a_.constant(type, p.coefficient);
  struct Group {
    std::vector<Id> axes;
    Id above = kNone;
    Id below = kNone;
    std::vector<Id> again = {};  // divides once more, after all of it
  };
  // -(m - x) is x - m: a sum to the first power takes the sign.
  Id flipped = kNone, flipped_as = kNone;
  if (p.coefficient < 0)
    for (const Factor& f : p.factors)
      if (const auto* inner = terms(f.atom); inner && f.halves == 2 && flipped == kNone) {
        std::vector<Product> negated = *inner;
        for (Product& t : negated) t.coefficient = -t.coefficient;
        flipped = f.atom;
        flipped_as = sum_expression(type, negated);
        p.coefficient = -p.coefficient;
      }
  std::vector<Group> groups;
  for (const Factor& f : p.factors) {
    std::vector<Id> axes(a_[f.atom].free_axes().begin(), a_[f.atom].free_axes().end());
    auto at = std::ranges::find(groups, axes, &Group::axes);
    if (at == groups.end()) at = groups.insert(at, {axes});
    const bool apart = f.halves <= -4 && has_exponential(f.atom);
    if (apart) at->again.insert(at->again.end(), static_cast<size_t>(-f.halves / 2 - 1), f.atom);
    Id value = raised(f.atom == flipped ? flipped_as : f.atom, apart ? 2 - f.halves % 2 : std::abs(f.halves));
    Id& side = f.halves > 0 ? at->above : at->below;
    side = side == kNone ? value : a_.mul(side, value);
  }
  std::ranges::stable_sort(groups, {}, [](const Group& g) { return g.axes.size(); });
  // Dims join the next group, which reads better (s[c]/N, not 1/N*s[c]) and costs nothing where that is
  // invariant itself.
  bool dims = std::ranges::all_of(p.factors, [&](const Factor& f) { return a_[f.atom].axes_count > 0 || a_[f.atom].op == Op::cast; });
  if (groups.size() > 1 && groups[0].axes.empty() && dims) {
    auto join = [&](Id x, Id y) { return x == kNone ? y : y == kNone ? x : a_.mul(x, y); };
    groups[1].above = join(groups[1].above, groups[0].above);
    groups[1].below = join(groups[0].below, groups[1].below);
    groups[1].again.insert(groups[1].again.end(), groups[0].again.begin(), groups[0].again.end());
    groups.erase(groups.begin());
  }
  bool negative = p.coefficient == -1;
  Id value = kNone;
  if (p.coefficient != 1 && !negative) value = a_.constant(type, p.coefficient);
  for (const Group& g : groups) {
    if (g.above != kNone) value = value == kNone ? g.above : a_.mul(value, g.above);
    if (g.below == kNone) continue;
    if (value == kNone) value = a_.constant(type, negative ? -1 : 1), negative = false;
    value = a_.div(value, g.below);
    for (Id below : g.again) value = a_.div(value, below);
  }
  return negative ? a_.unary(Op::neg, value) : value;
}

Id TensorExprTree::sum_expression(DType type, const std::vector<Product>& terms) {
  // A positive term first, so that there is no leading minus where one can be avoided.
  std::vector<const Product*> order;
  for (const Product& t : terms)
    if (t.coefficient > 0) order.push_back(&t);
  for (const Product& t : terms)
    if (t.coefficient <= 0) order.push_back(&t);
  Id value = kNone;
  for (const Product* t : order) {
    Product size = *t;
    if (value != kNone) size.coefficient = std::abs(size.coefficient);
    Id term = to_expression(size, type);
    if (value == kNone)
      value = term;
    else
      value = t->coefficient < 0 ? a_.sub(value, term) : a_.add(value, term);
  }
  return value;
}

}  // namespace xhat
