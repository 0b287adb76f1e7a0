#include "expr/index/simplify_index.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "expr/index/affine.h"
#include "expr/index/affine_poly.h"

namespace xhat::fusion {
namespace {

using affine::Poly;

class IndexSimplifier {
 public:
  IndexSimplifier(Arena& a, std::span<const AxisRange> axes) : a_(a), axes_(axes) {}

  Id run(Id index) {
    std::unordered_map<Id, Poly> done;
    for (Id id : reachable(a_, index)) {
      const Node n = a_[id];
      if (!is_integer(n.type)) continue;
      auto x = [&](size_t i) -> const Poly& { return done.at(n.arg(i)); };
      Poly p;
      if (n.op == Op::constant)
        p = Poly::constant(n.integer);
      else if (n.op == Op::add)
        p = x(0) + x(1);
      else if (n.op == Op::sub)
        p = x(0) - x(1);
      else if (n.op == Op::neg)
        p = -x(0);
      else if (n.op == Op::mul)
        p = x(0) * x(1);
      else if (auto d = divisor(n, done))
        p = n.op == Op::div ? quotient(x(0), *d) : rest(x(0), *d);
      else if (auto by = symbolic_divisor(n, done))
        p = by_dims(n, x(0), *by);
      else
        p = Poly::atom(rebuilt(id, n, done));
      done[id] = joined(p);
    }
    return affine::expression(a_, done.at(index));
  }

 private:
  std::optional<int64_t> divisor(const Node& n, const std::unordered_map<Id, Poly>& done) const {
    if ((n.op != Op::div && n.op != Op::mod) || n.type != DType::i64) return std::nullopt;
    auto d = done.at(n.arg(1)).as_constant();
    return d && *d > 0 ? d : std::nullopt;
  }

  // A product of dims and a number.
  std::optional<Poly> symbolic_divisor(const Node& n, const std::unordered_map<Id, Poly>& done) const {
    if ((n.op != Op::div && n.op != Op::mod) || n.type != DType::i64) return std::nullopt;
    const Poly& d = done.at(n.arg(1));
    if (d.terms.size() != 1 || d.terms.begin()->second <= 0) return std::nullopt;
    const bool dims = std::ranges::all_of(d.terms.begin()->first, [&](Id x) { return a_[x].op == Op::dim; });
    return dims ? std::optional(d) : std::nullopt;
  }

  // c*(e%m) is c*e but for multiples of c*m: where these are multiples of d, p and the result have the same remainder by d.
  Poly without_inner_remainders(const Poly& p, const Poly& d) {
    Poly all;
    bool again = false;
    for (const auto& [m, c] : p.terms) {
      const bool remainder = m.size() == 1 && a_[m[0]].op == Op::mod;
      const Id modulus = remainder ? a_[m[0]].arg(1) : kNone;
      if (!remainder || !affine::divide(Poly::constant(c) * affine::polynomial(a_, modulus, Poly::atom), d).second.terms.empty()) {
        all.add(m, c);
        continue;
      }
      all = all + Poly::constant(c) * affine::polynomial(a_, a_[m[0]].arg(0), Poly::atom);
      again = true;
    }
    return again ? without_inner_remainders(all, d) : all;
  }

  // (h*W + w)/W is h, and % W is w, for w in 0..W. Where W is 0, no position is read.
  Poly by_dims(const Node& n, const Poly& dividend, const Poly& d) {
    const Poly p = n.op == Op::mod ? without_inner_remainders(dividend, d) : dividend;
    auto [whole, left] = affine::divide(p, d);
    const bool all =
        prove_bounds(a_, {axes_, {}, affine::expression(a_, left), affine::expression(a_, d)}).verdict == BoundsAnswer::Verdict::proved;
    if (all) return n.op == Op::div ? whole : left;
    // (i + W - 1)%W is (i - 1)%W.
    return Poly::atom(a_.binary(n.op, affine::expression(a_, n.op == Op::mod ? left : p), affine::expression(a_, d)));
  }

  Id rebuilt(Id id, const Node& n, const std::unordered_map<Id, Poly>& done) {
    if (n.arg_count == 0 || is_reduction(n.op)) return id;
    std::vector<Id> args;
    for (Id x : n.args()) {
      auto it = done.find(x);
      bool same_type = it != done.end() && a_[x].type == DType::i64;
      args.push_back(same_type ? affine::expression(a_, it->second) : x);
    }
    return a_.with_args(id, args);
  }

  // Whole multiples of d, and what is left.
  std::pair<Poly, Poly> split(const Poly& p, int64_t d) const {
    Poly whole, left;
    for (const auto& [m, c] : p.terms) {
      int64_t q = c / d;
      if (m.empty() && q * d > c) --q;  // a constant leaves 0..d-1
      if (!m.empty() && q * d != c) q = 0;
      whole.add(m, q);
      left.add(m, c - q * d);
    }
    return {whole, left};
  }

  bool within(const Poly& p, int64_t extent) {
    if (auto c = p.as_constant()) return 0 <= *c && *c < extent;
    return prove_bounds(a_, {axes_, {}, affine::expression(a_, p), a_.integer(extent)}).verdict == BoundsAnswer::Verdict::proved;
  }

  // A common divisor g of d and of all terms but those that together stay in 0..g: p = g*large + small.
  struct Grain {
    int64_t g;
    Poly large, small;
  };
  std::optional<Grain> grain(const Poly& p, int64_t d) {
    std::set<int64_t, std::greater<>> candidates;
    for (const auto& [m, c] : p.terms)
      if (int64_t g = std::gcd(c, d); g > 1) candidates.insert(g);
    for (int64_t g : candidates) {
      auto [large, small] = split(p, g);
      if (!large.terms.empty() && within(small, g)) return Grain{g, large, small};
    }
    return std::nullopt;
  }

  // e%m as e - m*(e/m).
  Poly without_remainders(const Poly& p) {
    Poly all;
    for (const auto& [m, c] : p.terms) {
      const bool remainder = m.size() == 1 && a_[m[0]].op == Op::mod && a_[a_[m[0]].arg(1)].op == Op::constant;
      if (!remainder) {
        all.add(m, c);
        continue;
      }
      const Node mod = a_[m[0]];
      all = all + Poly::constant(c) * without_remainders(affine::polynomial(a_, mod.arg(0), Poly::atom)) -
            Poly::constant(c * a_[mod.arg(1)].integer) * Poly::atom(a_.div(mod.arg(0), mod.arg(1)));
    }
    return all;
  }

  Poly quotient(const Poly& p, int64_t d) {
    auto [whole, left] = split(p, d);
    if (within(left, d)) return whole;
    if (auto [more, less] = split(without_remainders(left), d); more.terms.size() + less.terms.size() < left.terms.size())
      return whole + more + quotient(less, d);
    if (auto by = grain(left, d); by && by->g < d) return whole + quotient(by->large, d / by->g);
    return whole + Poly::atom(a_.div(affine::expression(a_, left), a_.integer(d)));
  }

  Poly rest(const Poly& p, int64_t d) {
    Poly left = split(without_inner_remainders(p, Poly::constant(d)), d).second;
    if (within(left, d)) return left;
    if (auto by = grain(left, d); by && by->g < d) return Poly::constant(by->g) * rest(by->large, d / by->g) + by->small;
    return Poly::atom(a_.binary(Op::mod, affine::expression(a_, left), a_.integer(d)));
  }

  // c*d*(e/d) + c*(e%d) is c*e, and c*(e/d) + c*((e%d + f)/d) is c*((e + f)/d).
  Poly joined(Poly p) {
    for (bool again = true; again;) {
      again = false;
      for (const auto& [m, c] : p.terms) {
        if (const auto one = m.size() == 1 ? one_quotient(p, m[0], c) : std::nullopt) {
          p = *one;
          again = true;
          break;
        }
        if (m.size() != 1 || a_[m[0]].op != Op::mod) continue;
        const Node mod = a_[m[0]];
        const Id div = a_.div(mod.arg(0), mod.arg(1));
        const Poly others = Poly::constant(c) * affine::polynomial(a_, mod.arg(1), Poly::atom) * Poly::atom(div);  // c*d*(e/d)
        auto same = [&](const auto& term) {
          auto it = p.terms.find(term.first);
          return it != p.terms.end() && it->second == term.second;
        };
        if (others.terms.empty() || !std::ranges::all_of(others.terms, same)) continue;
        p = p.without(m[0]) - others + Poly::constant(c) * affine::polynomial(a_, mod.arg(0), Poly::atom);
        again = true;
        break;
      }
    }
    return p;
  }

  std::optional<Poly> one_quotient(const Poly& p, Id quotient_of_sum, int64_t c) {
    const Node n = a_[quotient_of_sum];
    if (n.op != Op::div || a_[n.arg(1)].op != Op::constant) return std::nullopt;
    const Poly sum = affine::polynomial(a_, n.arg(0), Poly::atom);
    for (const auto& [m, k] : sum.terms) {
      if (k != 1 || m.size() != 1 || a_[m[0]].op != Op::mod || a_[m[0]].arg(1) != n.arg(1)) continue;
      const Node mod = a_[m[0]];
      const Id other = a_.div(mod.arg(0), mod.arg(1));
      if (other == quotient_of_sum || p.coefficient(other) != c) continue;
      const Poly whole = sum.without(m[0]) + affine::polynomial(a_, mod.arg(0), Poly::atom);
      return p.without(quotient_of_sum).without(other) + Poly::constant(c) * quotient(whole, a_[n.arg(1)].integer);
    }
    return std::nullopt;
  }

  Arena& a_;
  std::span<const AxisRange> axes_;
};

}  // namespace

bool divides(const Arena& a, Id index) {
  return std::ranges::any_of(reachable(a, index),
                             [&](Id id) { return (a[id].op == Op::div || a[id].op == Op::mod) && is_integer(a[id].type); });
}

Id simplified_index(Arena& a, Id index, std::span<const AxisRange> axes) {
  try {
    return IndexSimplifier(a, axes).run(a.to(DType::i64, index));
  } catch (const affine::GaveUp&) {
    return index;  // beyond 64 bits
  }
}

}  // namespace xhat::fusion
