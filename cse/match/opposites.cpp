// Atoms that the normal form would not know for one another: numbers in them that differ by roundings, and functions of opposite values.
#include <algorithm>
#include <cmath>

#include "cse/match/tensor_expr_tree.h"

namespace xhat {

// Numbers of atoms that differ by roundings are one: (1/sqrt(2))^2 is 0.4999999999999999, and with it exp(-u^2/2) is not itself. Short ones are
// the number that was meant, of others it is the one that was met first.
double TensorExprTree::settled(double number) {
  constexpr double kRoundings = 0x1p-50;  // four roundings of f64 either way
  constexpr double kShort = 0x1p32;
  if (number == 0 || !std::isfinite(number)) return number;
  int exponent = 0;
  const double mantissa = std::frexp(number, &exponent), close = std::abs(number) * kRoundings;
  if (const double brief = std::ldexp(std::round(mantissa * kShort) / kShort, exponent); std::abs(brief - number) <= close) return brief;
  const auto near = numbers_.lower_bound(number - close);
  return near != numbers_.end() && *near <= number + close ? *near : *numbers_.insert(number).first;
}

void TensorExprTree::note_opposite(Id atom) {
  const Op op = a_[atom].op;
  if (op != Op::exp && op != Op::sigmoid && op != Op::softplus) return;
  const Product argument = form(a_[atom].arg(0));
  if (!of_argument_.try_emplace({op, argument.coefficient, argument.factors}, atom).second) return;
  const auto other = of_argument_.find({op, -argument.coefficient, argument.factors});
  if (other == of_argument_.end() || argument.coefficient == 0) return;
  opposite_[atom] = other->second;
  opposite_[other->second] = atom;
}

// A sum of exponentials. Of exp(u)/(exp(u) + v)^2 the square leaves the range long before the quotients do: exp(u)/s/s keeps it.
bool TensorExprTree::has_exponential(Id atom) const {
  const std::vector<Product>* sum = terms(atom);
  auto without_bound = [&](const Factor& f) {
    const Node n = a_[f.atom];
    return f.halves > 0 && n.op == Op::exp && a_[n.arg(0)].op != Op::minimum && a_[n.arg(0)].op != Op::clamp;
  };
  return sum && std::ranges::any_of(*sum, [&](const Product& t) { return std::ranges::any_of(t.factors, without_bound); });
}

// exp(-u)*exp(u) is 1.
bool TensorExprTree::meets_opposite(Product& p, const Factor& f) {
  const auto other = a_[f.atom].op == Op::exp ? opposite_.find(f.atom) : opposite_.end();
  const auto there = other == opposite_.end() ? p.factors.end() : std::ranges::find(p.factors, other->second, &Factor::atom);
  if (there == p.factors.end()) return false;
  const Factor against = *there;
  p.factors.erase(there);
  const int halves = f.halves - against.halves;
  halves > 0 ? put(p, f.atom, halves) : put(p, against.atom, -halves);
  return true;
}

// k*sigmoid(u) + k*sigmoid(-u) as k, and k*softplus(u) - k*softplus(-u) as k*u: either of them has roundings that the sum has not.
bool TensorExprTree::reflect_once(std::vector<Product>& terms) {
  for (size_t i = 0; i < terms.size(); ++i)
    for (const Factor& f : terms[i].factors) {
      const Op op = a_[f.atom].op;
      const auto other = f.halves == 2 && (op == Op::sigmoid || op == Op::softplus) ? opposite_.find(f.atom) : opposite_.end();
      if (other == opposite_.end()) continue;
      Product rest = terms[i];
      std::erase(rest.factors, f);
      Product wanted = multiply(rest, atom(other->second));
      if (op == Op::softplus) wanted.coefficient = -wanted.coefficient;
      const auto j = std::ranges::find_if(terms, [&](const Product& t) {
        return t.factors == wanted.factors && negligible(t.coefficient - wanted.coefficient, wanted.coefficient);
      });
      if (j == terms.end()) continue;
      terms[i] = op == Op::sigmoid ? rest : multiply(rest, form(a_[f.atom].arg(0)));
      terms.erase(j);
      return true;
    }
  return false;
}

}  // namespace xhat
