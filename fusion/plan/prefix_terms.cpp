#include "fusion/plan/prefix_terms.h"

#include <algorithm>

#include "expr/core/conditions.h"
#include "expr/index/linear.h"

namespace xhat::fusion {
namespace {

enum class Sign : uint8_t { unknown, at_least_zero, at_most_zero };
enum class Trend : uint8_t { unknown, rises, falls, level };

Sign opposite(Sign s) { return s == Sign::at_least_zero ? Sign::at_most_zero : s == Sign::at_most_zero ? Sign::at_least_zero : s; }
Trend opposite(Trend t) { return t == Trend::rises ? Trend::falls : t == Trend::falls ? Trend::rises : t; }

class Pairs {
 public:
  Pairs(const Program& p, const DimValues& sizes, Id result, Id term, bool suffix, int64_t nearest)
      : p_(p), a_(*p.arena), sizes_(sizes), result_(result), term_(term), suffix_(suffix), nearest_(nearest) {}

  std::optional<PairTerm> run(Id body, Id condition) {
    if (!factor(body, false)) return {};
    std::vector<Id> of_term, of_result;
    if (!is_true(a_, condition))
      for (Id c : conjuncts(a_, condition)) {
        if (!a_[c].depends_on(result_))
          of_term.push_back(c);
        else if (!a_[c].depends_on(term_))
          of_result.push_back(c);
        else if (!tie(c))
          return {};
      }
    if (made_.weights.empty()) return {};
    const DType type = a_[body].type;
    if (made_.term == kNone) made_.term = a_.constant(type, 1);
    // Where the condition does not hold nothing is evaluated.
    of_term.insert(of_term.end(), ties_.begin(), ties_.end());
    for (Id c : of_term) made_.term = a_.select(c, made_.term, a_.constant(type, 0));
    of_result.insert(of_result.end(), outer_ties_.begin(), outer_ties_.end());
    for (Id c : of_result) made_.outer = a_.select(c, made_.outer == kNone ? a_.constant(type, 1) : made_.outer, a_.constant(type, 0));
    return made_;
  }

 private:
  Id at_term(Id id) { return substitute(a_, id, {{result_, term_}}); }
  Id at_result(Id id) { return substitute(a_, id, {{term_, result_}}); }

  void times(Id& product, Id factor, bool inverse) {
    if (product == kNone && inverse) product = a_.constant(a_[factor].type, 1);
    product = product == kNone ? factor : inverse ? a_.div(product, factor) : a_.mul(product, factor);
  }

  bool factor(Id id, bool inverse) {
    if (!a_[id].depends_on(result_)) return times(made_.term, id, inverse), true;
    if (!a_[id].depends_on(term_)) return times(made_.outer, id, inverse), true;
    const Node n = a_[id];
    if (n.op == Op::mul) return factor(n.arg(0), inverse) && factor(n.arg(1), inverse);
    if (n.op == Op::div) return factor(n.arg(0), inverse) && factor(n.arg(1), !inverse);
    if (n.op == Op::neg) return times(made_.term, a_.constant(n.type, -1), false), factor(n.arg(0), inverse);
    if (inverse) return false;
    if (n.op == Op::pow && !a_[n.arg(0)].depends_on(result_) && !a_[n.arg(0)].depends_on(term_)) return power(n.arg(0), n.arg(1));
    if (n.op == Op::exp) return exponential(id);
    return false;
  }

  // of_result * result + of_term * term + constant, in whole numbers.
  struct Whole {
    int64_t of_result = 0, of_term = 0, constant = 0;
  };

  static Whole sum(const Whole& x, const Whole& y, int64_t sign) {
    return {x.of_result + sign * y.of_result, x.of_term + sign * y.of_term, x.constant + sign * y.constant};
  }

  std::optional<Whole> whole(Id id) const {
    const Node& n = a_[id];
    if (n.op == Op::constant && is_float(n.type) && n.value == static_cast<double>(static_cast<int64_t>(n.value)))
      return Whole{0, 0, static_cast<int64_t>(n.value)};
    if (n.op == Op::cast && a_[n.arg(0)].type == DType::i64) {
      const Linear l = linear(a_, n.arg(0));
      Whole made{0, 0, l.constant};
      for (auto [node, k] : l.terms) {
        if (node == result_)
          made.of_result += k;
        else if (node == term_)
          made.of_term += k;
        else if (a_[node].free_axes().empty() && tensors_read(a_, node).empty())
          made.constant += k * evaluate_extent(a_, node, sizes_);
        else
          return {};
      }
      return made;
    }
    if (n.op == Op::neg) {
      auto x = whole(n.arg(0));
      return x ? std::optional(sum({}, *x, -1)) : x;
    }
    if (n.op != Op::add && n.op != Op::sub) return {};
    auto x = whole(n.arg(0)), y = whole(n.arg(1));
    if (!x || !y) return {};
    return sum(*x, *y, n.op == Op::add ? 1 : -1);
  }

  // A weight of the distance alone, of which `places` is a multiple and a number: d^(2*(i-k)+1). The exponent that the nearest term has.
  std::optional<int64_t> carries(PairWeight w, const Whole& places) {
    w.rate = suffix_ ? places.of_term : places.of_result;  // per step from the result to the term
    if (w.rate == 0 || places.of_term != -places.of_result) return {};
    const int64_t least = places.constant + w.rate * nearest_;
    // Zero to a negative power is a division by it.
    if (w.kind == PairWeight::Kind::power && (w.rate < 0 || least < 0)) return {};
    made_.weights.push_back(w);
    return least;
  }

  bool power(Id base, Id exponent) {
    const auto places = whole(exponent);
    if (!places) return false;
    const auto least = carries({PairWeight::Kind::power, base}, *places);
    if (least && *least != 0) times(made_.term, a_.binary(Op::pow, base, a_.constant(a_[base].type, static_cast<double>(*least))), false);
    return least.has_value();
  }

  void addends(Id id, bool minus, std::vector<std::pair<Id, bool>>& found) const {
    const Node& n = a_[id];
    if (n.op == Op::add || n.op == Op::sub) {
      addends(n.arg(0), minus, found);
      addends(n.arg(1), minus != (n.op == Op::sub), found);
    } else if (n.op == Op::neg) {
      addends(n.arg(0), !minus, found);
    } else {
      found.emplace_back(id, minus);
    }
  }

  // A factor that is the same for all of both axes, and a whole number: a[d]*f32(t-k), -f32(t-k)/h.
  std::optional<std::pair<Id, Whole>> factor_and_places(Id id) {
    const Node n = a_[id];
    if (auto places = whole(id)) return std::pair(a_.constant(n.type, 1), *places);
    auto fixed = [&](Id x) { return !a_[x].depends_on(result_) && !a_[x].depends_on(term_); };
    auto with = [&](size_t at, auto&& around) {
      auto inner = factor_and_places(n.arg(at));
      if (inner) inner->first = around(inner->first);
      return inner;
    };
    if (n.op == Op::neg) return with(0, [&](Id r) { return a_.unary(Op::neg, r); });
    if (n.op == Op::div && fixed(n.arg(1))) return with(0, [&](Id r) { return a_.div(r, n.arg(1)); });
    if (n.op == Op::mul && fixed(n.arg(0))) return with(1, [&](Id r) { return a_.mul(n.arg(0), r); });
    if (n.op == Op::mul && fixed(n.arg(1))) return with(0, [&](Id r) { return a_.mul(n.arg(1), r); });
    return {};
  }

  // exp(base * places + of_result + of_term), the latter two as far as they are there.
  bool exponential_of(Id base, const Whole& places, Id of_result, Id of_term) {
    const auto least = carries({PairWeight::Kind::exponential, base}, places);
    if (!least) return false;
    if (*least != 0) {  // in one exponential with the term's own: the nearest term counts as it is written
      const Id nearest = a_.mul(base, a_.constant(a_[base].type, static_cast<double>(*least)));
      of_term = of_term == kNone ? nearest : a_.add(of_term, nearest);
    }
    if (of_term != kNone) times(made_.term, a_.unary(Op::exp, of_term), false);
    if (of_result != kNone) times(made_.outer, a_.unary(Op::exp, of_result), false);
    return true;
  }

  bool exponential(Id id) {
    const Id argument = a_[id].arg(0);
    std::vector<std::pair<Id, bool>> parts;
    addends(argument, false, parts);
    Id of_result = kNone, of_term = kNone, of_distance = kNone, of_neither = kNone;
    auto add = [&](Id& sum, Id part, bool minus) {
      const Id x = minus ? a_.unary(Op::neg, part) : part;
      sum = sum == kNone ? x : a_.add(sum, x);
    };
    for (auto [part, minus] : parts) {
      const bool with_result = a_[part].depends_on(result_), with_term = a_[part].depends_on(term_);
      add(with_result && with_term ? of_distance : with_result ? of_result : with_term ? of_term : of_neither, part, minus);
    }
    if (const auto whole = factor_and_places(argument)) return exponential_of(whole->first, whole->second, kNone, kNone);
    if (of_distance != kNone) {
      // exp(k[s] - a*(t-s)): of a weight that falls with the distance, for where it grows exp(k[s]) may be 0 and the two together are not.
      const auto distance = factor_and_places(of_distance);
      if (!distance || (of_result != kNone && of_term != kNone)) return false;
      const int64_t rate = suffix_ ? distance->second.of_term : distance->second.of_result;
      if (sign(distance->first) != (rate > 0 ? Sign::at_most_zero : Sign::at_least_zero)) return false;
      if (of_neither != kNone) add(of_result != kNone ? of_result : of_term, of_neither, false);
      return exponential_of(distance->first, distance->second, of_result, of_term);
    }
    // The level falls with the distance from the term.
    const Trend wanted = suffix_ ? Trend::rises : Trend::falls;
    const Trend here = trend(of_result, result_);
    if (here == wanted) {
      times(made_.term, a_.unary(Op::exp, at_term(argument)), false);
      made_.weights.push_back({PairWeight::Kind::potential, kNone, 0, of_result});
      return true;
    }
    if (trend(of_term, term_) != opposite(wanted)) return false;
    times(made_.outer, a_.unary(Op::exp, at_result(argument)), false);
    made_.weights.push_back({PairWeight::Kind::potential, kNone, 0, a_.unary(Op::neg, at_result(of_term))});
    return true;
  }

  // x == m, m being the extreme of x from the one to the other: also between them then.
  bool tie(Id condition) {
    const Node n = a_[condition];
    if (n.op != Op::eq) return false;
    for (size_t side = 0; side < 2; ++side) {
      const Id x = n.arg(side), m = n.arg(1 - side);
      for (bool of_result : {true, false}) {
        const Id axis = of_result ? result_ : term_, other = of_result ? term_ : result_;
        if (a_[m].depends_on(other) || !a_[m].depends_on(axis) || a_[x].depends_on(axis)) continue;
        const auto extreme = running_extreme(m, axis);
        if (!extreme) continue;
        // x's position comes before m's where m is a prefix's.
        if (extreme->suffix != (suffix_ == of_result)) continue;
        if (substitute(a_, extreme->body, {{extreme->axis, other}}) != x) continue;
        made_.weights.push_back({PairWeight::Kind::same, kNone, 0, of_result ? m : at_result(m)});
        if (of_result)
          ties_.push_back(a_.eq(x, at_term(m)));
        else
          outer_ties_.push_back(a_.eq(x, at_result(m)));
        return true;
      }
    }
    return false;
  }

  struct Running {
    Op op = Op::max;
    Id body = kNone, axis = kNone;  // of the reduction, in terms of the read's indices otherwise
    bool suffix = false;
  };

  // What a read is, if it is a reduction over all positions up to `axis`, that one included, or from it on.
  std::optional<Running> running(Id read, Id axis) {
    while (a_[read].op == Op::stop_gradient) read = a_[read].arg(0);
    const Node n = a_[read];
    if (n.op != Op::read) return {};
    const Definition* d = p_.definition_of(n.symbol);
    if (!d || d->is_call()) return {};
    const Node root = a_[d->body];
    if ((root.op != Op::max && root.op != Op::min && root.op != Op::sum) || !is_true(a_, reduce_condition(root))) return {};
    const auto axes = reduce_axes(root);
    const auto indices = read_indices(n);
    if (axes.size() != 1) return {};
    Replacements here;
    Id along = kNone;
    for (size_t i = 0; i < indices.size(); ++i) {
      here[d->axes[i].axis] = indices[i];
      if (!a_[indices[i]].depends_on(axis)) continue;
      if (indices[i] != axis || along != kNone) return {};
      along = d->axes[i].axis;
    }
    if (along == kNone || a_[reduce_body(root)].depends_on(along)) return {};
    Running r{root.op, kNone, a_.fresh_axis(axes[0].axis, std::vector<Id>{axis, result_, term_})};
    const Linear end = linear(a_, axes[0].end), begin = linear(a_, axes[0].begin);
    if (is_constant(a_, axes[0].begin, 0) && end == Linear{{{along, 1}}, 1})
      r.suffix = false;
    else if (begin == Linear{{{along, 1}}, 0} && a_[axes[0].end].free_axes().empty())
      r.suffix = true;
    else
      return {};
    here.erase(along);
    here[axes[0].axis] = r.axis;
    r.body = substitute(a_, reduce_body(root), here);
    return r;
  }

  std::optional<Running> running_extreme(Id read, Id axis) {
    auto r = running(read, axis);
    return r && r->op != Op::sum ? r : std::nullopt;
  }

  Trend trend(Id id, Id axis) {
    if (id == kNone) return Trend::unknown;
    if (!a_[id].depends_on(axis)) return Trend::level;
    const Node n = a_[id];
    if (n.op == Op::neg) return opposite(trend(n.arg(0), axis));
    if (n.op == Op::stop_gradient) return trend(n.arg(0), axis);
    if (n.op == Op::add || n.op == Op::sub) {
      const Trend x = trend(n.arg(0), axis), y = n.op == Op::add ? trend(n.arg(1), axis) : opposite(trend(n.arg(1), axis));
      return x == Trend::level ? y : y == Trend::level || x == y ? x : Trend::unknown;
    }
    const auto r = running(id, axis);
    if (!r) return Trend::unknown;
    const Sign s = r->op == Op::sum ? sign(r->body) : r->op == Op::max ? Sign::at_least_zero : Sign::at_most_zero;
    if (s == Sign::unknown) return Trend::unknown;
    return (s == Sign::at_least_zero) != r->suffix ? Trend::rises : Trend::falls;
  }

  // Of a value that is no NaN.
  Sign sign(Id id) const {
    const Node& n = a_[id];
    auto at_least = [](bool yes) { return yes ? Sign::at_least_zero : Sign::unknown; };
    switch (n.op) {
      case Op::constant: return n.value >= 0 ? Sign::at_least_zero : Sign::at_most_zero;
      case Op::exp:
      case Op::sqrt:
      case Op::abs:
      case Op::sigmoid:
      case Op::softplus:
      case Op::relu: return Sign::at_least_zero;
      case Op::stop_gradient: return sign(n.arg(0));
      case Op::neg: return opposite(sign(n.arg(0)));
      case Op::log: return a_[n.arg(0)].op == Op::sigmoid ? Sign::at_most_zero : Sign::unknown;
      case Op::pow: return at_least(is_constant(a_, n.arg(1), 2) || sign(n.arg(0)) == Sign::at_least_zero);
      case Op::add: return sign(n.arg(0)) == sign(n.arg(1)) ? sign(n.arg(0)) : Sign::unknown;
      case Op::mul:
      case Op::div: {
        const Sign x = sign(n.arg(0)), y = sign(n.arg(1));
        if (n.op == Op::mul && n.arg(0) == n.arg(1)) return Sign::at_least_zero;
        if (x == Sign::unknown || y == Sign::unknown) return Sign::unknown;
        return x == y ? Sign::at_least_zero : Sign::at_most_zero;
      }
      default: return Sign::unknown;
    }
  }

  const Program& p_;
  Arena& a_;
  const DimValues& sizes_;
  Id result_, term_;
  bool suffix_;
  int64_t nearest_;
  PairTerm made_;
  std::vector<Id> ties_, outer_ties_;
};

}  // namespace

Id PairWeight::over(Arena& a, Id number) const {
  return kind == Kind::power ? a.binary(Op::pow, base, number) : a.unary(Op::exp, a.mul(base, number));
}

std::optional<PairTerm> pair_term(const Program& p, const DimValues& sizes, Id body, Id condition, Id result, Id term, bool suffix,
                                  int64_t nearest) {
  return Pairs(p, sizes, result, term, suffix, nearest).run(body, condition);
}

}  // namespace xhat::fusion
