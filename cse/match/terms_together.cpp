// Terms of a sum that are one: choices by one condition, or by comparisons of the same two values, parts of what they are divided by, and what cancels a
// part of another one. And the logarithm of a product as a sum.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>

#include "cse/match/tensor_expr_tree.h"
#include "expr/core/conditions.h"

namespace xhat {
namespace {

// x below y, equal to it, above it: of two floats, x < y by Id.
enum Outcome : int { kBelow, kEqual, kAbove };

struct Compared {
  Id x, y;
  std::array<bool, 3> holds;  // by outcome
};

std::optional<Compared> compared(const Arena& a, Id condition) {
  const Node& n = a[condition];
  if (n.arg_count != 2 || !is_float(a[n.arg(0)].type)) return std::nullopt;
  Compared c{n.arg(0), n.arg(1), {n.op == Op::lt || n.op == Op::le || n.op == Op::ne, n.op == Op::eq || n.op == Op::le, n.op == Op::ne}};
  if (n.op != Op::lt && n.op != Op::le && n.op != Op::eq && n.op != Op::ne) return std::nullopt;
  if (c.y < c.x) {
    std::swap(c.x, c.y);
    std::swap(c.holds[kBelow], c.holds[kAbove]);
  }
  return c;
}

// What it is for each outcome, if it is chosen by comparing x and y.
std::optional<std::array<Id, 3>> outcomes(Arena& a, Id atom, Id x, Id y) {
  const Node n = a[atom];
  if (n.op == Op::select) {
    const auto c = compared(a, n.arg(0));
    if (!c || c->x != x || c->y != y) return std::nullopt;
    std::array<Id, 3> all{};
    for (size_t i = 0; i < 3; ++i) all[i] = c->holds[i] ? n.arg(1) : n.arg(2);
    return all;
  }
  if (n.op == Op::relu) {
    if (n.arg(0) == x && is_constant(a, y, 0)) return {{y, x, x}};
    if (n.arg(0) == y && is_constant(a, x, 0)) return {{y, y, x}};
  }
  if (n.op == Op::maximum || n.op == Op::minimum)
    if ((n.arg(0) == x && n.arg(1) == y) || (n.arg(0) == y && n.arg(1) == x)) {
      const bool largest = n.op == Op::maximum;
      return {{largest ? y : x, x, largest ? x : y}};
    }
  return std::nullopt;
}

}  // namespace

// The product where x and y compare like that.
Product TensorExprTree::by_outcome(const Product& p, Id x, Id y, int outcome) {
  Product chosen{p.coefficient, {}};
  for (const Factor& f : p.factors) {
    const auto all = f.halves > 0 ? outcomes(a_, f.atom, x, y) : std::nullopt;
    multiply_in(chosen, all ? by_outcome(form((*all)[static_cast<size_t>(outcome)]), x, y, outcome) : atom(f.atom), f.halves);
  }
  if (outcome != kEqual) return chosen;
  return where_equal(a_[a_.eq(x, y)], chosen);
}

// None: it is none of two.
std::optional<Product> TensorExprTree::as_one_choice(DType type, const Product& s, const Product& t, Id x, Id y) {
  std::array<Product, 3> values;
  for (int k : {kBelow, kEqual, kAbove}) values[static_cast<size_t>(k)] = add(type, {by_outcome(s, x, y, k), by_outcome(t, x, y, k)});
  const Id equal = a_.eq(x, y);
  auto like = [&](Outcome k) { return where_equal(a_[equal], values[k]) == values[kEqual]; };
  if (!like(kBelow) && !like(kAbove)) return {};
  const Id yes = to_expression(values[kAbove], type), no = to_expression(values[kBelow], type);
  // The number stands first, as in 0 < x.
  return form(a_.select(a_.binary(like(kBelow) ? Op::lt : Op::le, y, x), yes, no));
}

// (if 0 < x then a else if x == 0 then a/2 else 0) + (if x == 0 then a/2 else 0) as if 0 <= x then a else 0: choices by comparisons of the same
// two values that come to one choice of two. relu(x), max and min count as such.
bool TensorExprTree::compare_once(DType type, std::vector<Product>& terms) {
  for (size_t i = 0; i < terms.size(); ++i)
    for (const Factor& f : std::vector<Factor>(terms[i].factors)) {
      const Node n = a_[f.atom];
      const auto c = n.op == Op::select && f.halves == 2 ? compared(a_, n.arg(0)) : std::nullopt;
      if (!c) continue;
      for (size_t j = 0; j < terms.size(); ++j) {
        const auto chosen = [&](const Factor& g) { return g.halves > 0 && outcomes(a_, g.atom, c->x, c->y); };
        if (i == j || !std::ranges::any_of(terms[j].factors, chosen)) continue;
        const ComparedKey key{type,
                              std::bit_cast<uint64_t>(terms[i].coefficient),
                              terms[i].factors,
                              std::bit_cast<uint64_t>(terms[j].coefficient),
                              terms[j].factors,
                              c->x,
                              c->y};
        auto known = compared_.find(key);
        if (known == compared_.end()) known = compared_.emplace(key, as_one_choice(type, terms[i], terms[j], c->x, c->y)).first;
        if (!known->second) continue;
        terms[i] = *known->second;
        terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(j));
        return true;
      }
    }
  return false;
}

// k*(if c then a else b) + m*(if c then d else e) as if c then k*a + m*d else k*b + m*e. Branches that many choices share are met
// along every path to them, so what two choices make is remembered.
bool TensorExprTree::choose_once(DType type, std::vector<Product>& terms) {
  auto choice = [&](const Product& t) {
    return t.factors.size() == 1 && t.factors[0].halves == 2 && a_[t.factors[0].atom].op == Op::select;
  };
  for (size_t i = 0; i < terms.size(); ++i)
    for (size_t j = i + 1; j < terms.size(); ++j) {
      if (!choice(terms[i]) || !choice(terms[j])) continue;
      const Node x = a_[terms[i].factors[0].atom], y = a_[terms[j].factors[0].atom];
      const bool opposite = x.arg(0) != y.arg(0) && negation(a_, x.arg(0)) == y.arg(0);
      if (x.arg(0) != y.arg(0) && !opposite) continue;
      const ChoicesKey key{type, terms[i].factors[0].atom, terms[j].factors[0].atom, std::bit_cast<uint64_t>(terms[i].coefficient),
                           std::bit_cast<uint64_t>(terms[j].coefficient)};
      auto known = choices_.find(key);
      if (known == choices_.end()) {
        auto branch = [&](size_t k) {
          const Id of_x = x.arg(k), of_y = y.arg(opposite ? 3 - k : k);
          return to_expression(
              add(type, {multiply({terms[i].coefficient, {}}, form(of_x)), multiply({terms[j].coefficient, {}}, form(of_y))}), type);
        };
        const Id yes = branch(1), no = branch(2);
        known = choices_.emplace(key, form(a_.select(x.arg(0), yes, no))).first;
      }
      terms[i] = known->second;
      terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(j));
      return true;
    }
  return false;
}

// sqrt(1/(a*b)) and 1/sqrt(a*b) are one: more is multiplied under the root than divided by; of as much, what has the lower key is.
bool TensorExprTree::mostly_divides(const Product& p) {
  int64_t above = 0;
  for (const Factor& f : p.factors) above += f.halves > 0 ? 1 : -1;
  if (above != 0) return above < 0;
  return std::ranges::min(p.factors, {}, [&](const Factor& f) { return key(f.atom); }).halves < 0;
}

// k*u/(u + v) + k*v/(u + v) as k.
bool TensorExprTree::divide_once(std::vector<Product>& terms) {
  auto find = [&](const Product& wanted) {
    return std::ranges::find_if(terms, [&](const Product& t) {
      return t.factors == wanted.factors && negligible(t.coefficient - wanted.coefficient, wanted.coefficient);
    });
  };
  for (const Product& first : terms)
    for (const Factor& divisor : first.factors) {
      const std::vector<Product>* sum = divisor.halves <= -2 ? this->terms(divisor.atom) : nullptr;
      if (!sum || sum->size() > terms.size()) continue;
      const std::vector<Product> parts = *sum;
      const Product whole = multiply(multiply(first, power(parts[0], -2)), {1, {{divisor.atom, 2}}});
      const bool divides_more = std::ranges::any_of(whole.factors, [&](const Factor& f) {
        return f.halves < 0 &&
               std::ranges::none_of(first.factors, [&](const Factor& g) { return g.atom == f.atom && g.halves <= f.halves; });
      });
      if (divides_more) continue;
      const Product quotient = multiply(whole, {1, {{divisor.atom, -2}}});
      if (!std::ranges::all_of(parts, [&](const Product& part) { return find(multiply(quotient, part)) != terms.end(); })) continue;
      for (const Product& part : parts) terms.erase(find(multiply(quotient, part)));
      terms.push_back(whole);
      return true;
    }
  return false;
}

// k*(a + b) - k*a as k*b.
bool TensorExprTree::cancel_once(DType type, std::vector<Product>& terms) {
  auto share = [](const Product& x, const Product& y) {
    return std::ranges::any_of(x.factors,
                               [&](const Factor& f) { return std::ranges::find(y.factors, f.atom, &Factor::atom) != y.factors.end(); });
  };
  for (size_t i = 0; i < terms.size(); ++i)
    for (const Factor& f : terms[i].factors) {
      const std::vector<Product>* sum = f.halves == 2 && terms[i].factors.size() > 1 ? this->terms(f.atom) : nullptr;
      if (!sum) continue;
      // Another term has an atom of the part, or of what stands before a number.
      auto may_cancel = [&](const Product& part) {
        return std::ranges::any_of(terms,
                                   [&](const Product& t) { return &t != &terms[i] && share(t, part.is_number() ? terms[i] : part); });
      };
      if (std::ranges::none_of(*sum, may_cancel)) continue;
      std::vector<Product> parts = *sum;
      Product rest = terms[i];
      std::erase(rest.factors, f);
      for (size_t k = 0; k < parts.size(); ++k) {
        if (!may_cancel(parts[k])) continue;
        const Product whole = multiply(rest, parts[k]);
        const auto other = std::ranges::find_if(terms, [&](const Product& t) {
          return t.factors == whole.factors && negligible(t.coefficient + whole.coefficient, whole.coefficient);
        });
        if (other == terms.end() || other - terms.begin() == static_cast<std::ptrdiff_t>(i)) continue;
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(k));
        terms[i] = multiply(rest, add(type, std::move(parts)));
        terms.erase(other);
        return true;
      }
    }
  return false;
}

// log(exp(u[n,d])*r[n]) as u + log(r), and log(1/r) as -log(r); none where it is neither. Not where r lacks no axis of u: exp(u)/(exp(u) + exp(v)) has
// digits that u and the logarithm of the sum, both large, have not.
std::optional<Product> TensorExprTree::without_exponentials(DType type, const Product& p) {
  std::vector<Product> terms;
  Product rest{p.coefficient, {}};
  for (const Factor& f : p.factors) {
    if (a_[f.atom].op == Op::exp)
      terms.push_back(multiply({f.halves / 2.0, {}}, form(a_[f.atom].arg(0))));
    else
      rest.factors.push_back(f);
  }
  const std::vector<Id> axes = free_axes(p);
  if (!terms.empty() && !rest.is_number() && free_axes(rest) == axes) return std::nullopt;
  const bool divided = rest.coefficient == 1 && rest.factors.size() == 1 && rest.factors[0].halves == -2;
  if ((terms.empty() && !divided) || (rest.is_number() && rest.coefficient <= 0)) return std::nullopt;
  auto log_of = [&](const Product& x) { return form(a_.unary(Op::log, to_expression(x, type))); };
  if (rest.is_number())
    terms.push_back({std::log(rest.coefficient), {}});
  else
    terms.push_back(divided ? multiply({-1, {}}, log_of(power(rest, -2))) : log_of(rest));
  return add(type, std::move(terms));
}

}  // namespace xhat
