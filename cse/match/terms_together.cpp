// Terms of a sum that are one: choices by one condition, and parts of what they are divided by.
#include <algorithm>
#include <bit>

#include "cse/match/tensor_expr_tree.h"
#include "expr/core/conditions.h"

namespace xhat {

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
        return f.halves < 0 && std::ranges::none_of(first.factors, [&](const Factor& g) { return g.atom == f.atom && g.halves <= f.halves; });
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

}  // namespace xhat
