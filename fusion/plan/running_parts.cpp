#include "fusion/plan/running_parts.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "expr/core/conditions.h"
#include "expr/index/linear.h"
#include "fusion/plan/interval_products.h"
#include "fusion/plan/prefix_terms.h"
#include "fusion/plan/running.h"

namespace xhat {
namespace {

constexpr int64_t kLongRange = 32;  // places: shorter ones are summed up in pairs
constexpr double kMost = 1 << 28;   // elements of a running sum
constexpr double kOfAnElement = 8;  // pairs that registers add up while one element of a running sum is written and read

class RunningParts {
 public:
  RunningParts(const Program& p, const DimValues& sizes) : p_(p), a_(*p.arena), sizes_(sizes) {}

  Program run() {
    std::vector<Definition> all;
    for (const Definition& d : std::vector<Definition>(p_.forward.definitions))
      for (Definition& part : terms_of(d)) take_apart(std::move(part), &all);
    p_.forward.definitions = std::move(all);
    return without_dead(p_);  // sums of pairs that nobody asks for any more
  }

 private:
  void take_apart(Definition d, std::vector<Definition>* all) {
    d.body = by_the_middle(d);
    if (const Id whole = with_sums_of_pairs(d); whole != d.body) {
      Definition tried = d;
      tried.body = whole;
      if (const auto inner = inner_of(&tried); inner && kOfAnElement * elements(inner->axes) <= pairs_of(d)) d.body = whole;
    }
    while (auto inner = inner_of(&d)) {
      as_repeated(&*inner, all);
      all->push_back(*inner);
    }
    as_repeated(&d, all);
    all->push_back(d);
  }

  double elements(const std::vector<AxisRange>& axes) const {
    double all = 1;
    for (const AxisRange& r : axes) all *= static_cast<double>(number(r.end));
    return all;
  }
  // Terms of a sum over pairs of places, half of which are there.
  double pairs_of(const Definition& d) {
    double all = elements(d.axes) / 2;
    const Sum s = *sum_of(d);
    for (AxisRange r : s.axes) {
      if (const auto m = moving(r))
        for (const auto* list : {&d.axes, &s.axes})
          for (const AxisRange& with : *list)
            if (with.axis == m->with) r.end = with.end;
      if (range_is_plain(a_, r)) all *= static_cast<double>(number(r.end));
    }
    return all;
  }

  bool has(Id e, Id axis) const { return e != kNone && a_[e].depends_on(axis); }
  int64_t number(Id extent) const { return evaluate_extent(a_, extent, sizes_); }
  Id times(Id x, Id y) { return x == kNone ? y : y == kNone ? x : a_.mul(x, y); }

  struct Sum {
    std::vector<AxisRange> axes;
    std::vector<Id> factors, conditions;
  };

  // -(x*y) is -1 times x times y.
  std::vector<Id> factors_of(Id product) {
    std::vector<Id> factors;
    for (Id x : operands_of(a_, product, Op::mul)) {
      if (a_[x].op != Op::neg) {
        factors.push_back(x);
        continue;
      }
      factors.push_back(a_.constant(a_[x].type, -1));
      std::ranges::copy(factors_of(a_[x].arg(0)), std::back_inserter(factors));
    }
    return factors;
  }

  std::optional<Sum> sum_of(const Definition& d) {
    if (d.is_call() || a_[d.body].op != Op::sum) return {};
    const Node root = a_[d.body];
    const DType type = a_[reduce_body(root)].type;
    if ((type != DType::f32 && type != DType::f64) || p_.tensor(d.target()).type != type) return {};
    Sum s{reduce_axes(root), factors_of(reduce_body(root)), {}};
    if (!is_true(a_, reduce_condition(root))) s.conditions = conjuncts(a_, reduce_condition(root));
    return s;
  }

  Definition define(const Definition& like, const std::vector<AxisRange>& axes, Id body) {
    return fusion::defined_over(p_, like, p_.tensor(like.target()).name + "_run", axes, body);
  }

  // A range of which one end is an axis and a number: the axis, and whether it is the beginning.
  struct Moving {
    Id with = kNone;
    bool suffix = false;
    int64_t by = 0;
  };
  std::optional<Moving> moving(const AxisRange& r) const {
    const bool suffix = a_[r.end].free_axes().empty();
    if (suffix == a_[r.begin].free_axes().empty()) return {};
    if (!suffix && !is_constant(a_, r.begin, 0)) return {};
    const Linear l = linear(a_, suffix ? r.begin : r.end);
    if (l.terms.size() != 1 || l.terms.begin()->second != 1 || a_[l.terms.begin()->first].op != Op::axis) return {};
    return Moving{l.terms.begin()->first, suffix, l.constant};
  }

  // f(t - k), or of k - t if t is where the range begins; less: f(t - less - k).
  bool is_distance(Id id, const Moving& m, Id term, int64_t less = 0) const {
    const Node& n = a_[id];
    if (n.op != Op::cast || a_[n.arg(0)].type != DType::i64) return false;
    return linear(a_, n.arg(0)) == Linear{{{m.with, m.suffix ? -1 : 1}, {term, m.suffix ? 1 : -1}}, -less};
  }

  // How far the nearest term is from its result.
  static int64_t nearest(const Moving& m) { return m.suffix ? m.by : 1 - m.by; }
  bool counts_distance(Id id, const Moving& m, Id term) const { return is_distance(id, m, term) || is_distance(id, m, term, nearest(m)); }

  // ---- products on both sides of a place ----

  // What a product between places is multiplied with: itself, or a sum over one more axis (states), which becomes part of the sum around it.
  bool is_weighted(const Definition* made) const {
    if (!made || made->is_call()) return false;
    if (a_[made->body].op == Op::prod) return true;
    if (a_[made->body].op != Op::sum) return false;
    return std::ranges::any_of(operands_of(a_, reduce_body(a_[made->body]), Op::mul), [&](Id x) {
      const Definition* its = is_read(a_[x].op) ? p_.definition_of(a_[x].symbol) : nullptr;
      return its && !its->is_call() && a_[its->body].op == Op::prod;
    });
  }

  // sum(t: if c then x*sum(s: y) else 0) as sum(t, s if c: x*y), where `inside(definition of the sum, read)` holds.
  template <class Inside>
  Sum flat(const Sum& around, const Definition& d, Inside inside) {
    Sum s{around.axes, {}, around.conditions};
    std::vector<Id> open = around.factors, used;
    for (const AxisRange& r : d.axes) used.push_back(r.axis);
    for (const AxisRange& r : around.axes) used.push_back(r.axis);
    while (!open.empty()) {
      const Id x = open.back();
      const Node n = a_[x];
      open.pop_back();
      const Definition* made = n.op == Op::read ? p_.definition_of(n.symbol) : nullptr;
      if (n.op == Op::select && is_constant(a_, n.arg(2), 0)) {
        for (Id c : conjuncts(a_, n.arg(0))) s.conditions.push_back(c);
        std::ranges::copy(factors_of(n.arg(1)), std::back_inserter(open));
      } else if (made && !made->is_call() && a_[made->body].op == Op::sum && inside(*made, n)) {
        const Node root = a_[made->body];
        Replacements here;
        for (size_t i = 0; i < made->axes.size(); ++i) here[made->axes[i].axis] = n.arg(i);
        for (const AxisRange& r : reduce_axes(root)) {
          const Id fresh = a_.fresh_axis(r.axis, used);
          used.push_back(fresh);
          s.axes.push_back({fresh, substitute(a_, r.begin, here), substitute(a_, r.end, here)});
          here[r.axis] = fresh;
        }
        if (!is_true(a_, reduce_condition(root)))
          for (Id c : conjuncts(a_, substitute(a_, reduce_condition(root), here))) s.conditions.push_back(c);
        std::ranges::copy(factors_of(substitute(a_, reduce_body(root), here)), std::back_inserter(open));
      } else {
        s.factors.push_back(x);
      }
    }
    std::erase_if(s.conditions, [&](Id c) { return is_implied(c, s.axes); });
    return s;
  }

  // Does a comparison of positions hold wherever the axes are in their ranges?
  bool is_implied(Id condition, const std::vector<AxisRange>& axes) const {
    const Node& n = a_[condition];
    if ((n.op != Op::le && n.op != Op::lt) || a_[n.arg(0)].type != DType::i64) return false;
    Linear l = linear(a_, n.arg(1));
    add_scaled(l, linear(a_, n.arg(0)), -1);
    if (n.op == Op::lt) l.constant -= 1;
    for (size_t i = axes.size(); i-- > 0;) {
      const auto at = l.terms.find(axes[i].axis);
      if (at == l.terms.end()) continue;
      const int64_t by = at->second;
      l.terms.erase(at);
      add_scaled(l, linear(a_, by > 0 ? axes[i].begin : axes[i].end), by);
      if (by < 0) l.constant -= by;
    }
    std::erase_if(l.terms, [](const auto& t) { return t.second == 0; });
    return l.terms.empty() && l.constant >= 0;
  }

  // sum(t in 0..N, k in 0..t+1, j in k+1..t+1: f) as sum(j in 0..N-1, k in 0..j+1, t in j+1..N: f at j+1): the gradient of a recurrence by what
  // all its factors depend on.
  Id by_the_middle(const Definition& d) {
    auto s = sum_of(d);
    if (!s) return d.body;
    const bool weighted = std::ranges::any_of(reachable(a_, d.body),
                                              [&](Id x) { return a_[x].op == Op::read && is_weighted(p_.definition_of(a_[x].symbol)); });
    if (!weighted) return d.body;
    // Products between places.
    Sum made = flat(*s, d, [&](const Definition& inner, const Node&) { return is_weighted(&inner); });
    for (size_t i = 0; i < made.axes.size(); ++i)
      if (turned(made, i)) break;
    Id body = kNone, condition = kNone;
    for (Id x : made.factors) body = times(body, x);
    for (Id c : made.conditions) condition = condition == kNone ? c : a_.land(condition, c);
    return a_.reduce(Op::sum, made.axes, condition, body);
  }

  // sum(t, k: w*(r[t,k] - s[t,k])) as the difference of two sums, where r and s are sums for each pair.
  std::vector<Definition> terms_of(const Definition& d) {
    const auto s = sum_of(d);
    if (!s) return {d};
    const Sum made = flat(*s, d, [](const Definition&, const Node&) { return false; });
    for (size_t i = 0; i < made.factors.size(); ++i) {
      const Node n = a_[made.factors[i]];
      if (n.op != Op::add && n.op != Op::sub) continue;
      const auto of_pairs = [&](Id x) {
        const Node& read = a_[x];
        const Definition* its = read.op == Op::read ? p_.definition_of(read.symbol) : nullptr;
        return its && !its->is_call() && a_[its->body].op == Op::sum && std::ranges::any_of(made.axes, [&](const AxisRange& r) {
                 const auto m = moving(r);
                 return m && read.depends_on(r.axis) && read.depends_on(m->with);
               });
      };
      if (!of_pairs(n.arg(0)) || !of_pairs(n.arg(1))) continue;
      std::vector<Definition> parts;
      Id condition = kNone, sides[2];
      for (Id c : made.conditions) condition = condition == kNone ? c : a_.land(condition, c);
      for (size_t side : {0u, 1u}) {
        Id body = n.arg(side);
        for (size_t j = 0; j < made.factors.size(); ++j)
          if (j != i) body = a_.mul(made.factors[j], body);
        parts.push_back(define(d, d.axes, a_.reduce(Op::sum, made.axes, condition, body)));
        sides[side] = a_.read(parts.back().target(), a_[body].type, fusion::indices_of(d.axes));
      }
      parts.push_back(d);
      parts.back().body = a_.binary(n.op, sides[0], sides[1]);
      return parts;
    }
    return {d};
  }

  // sum(t, k: w*s[t,k]) as sum(t, k, b: w*x[b,t]*y[b,k]), where s[t,k] = sum(b: x[b,t]*y[b,k]) are fewer pairs to weigh, but then no sum runs.
  Id with_sums_of_pairs(const Definition& d) {
    const auto s = sum_of(d);
    if (!s) return d.body;
    for (const AxisRange& r : s->axes) {
      const auto m = moving(r);
      if (!m) continue;
      const auto of_pairs = [&](const Definition& made, const Node& read) {
        Id both[] = {kNone, kNone};
        for (size_t i = 0; i < made.axes.size(); ++i)
          for (size_t side : {0u, 1u})
            if (read.arg(i) == (side == 0 ? r.axis : m->with)) both[side] = made.axes[i].axis;
        return both[0] != kNone && both[1] != kNone;
      };
      const Sum made = flat(*s, d, of_pairs);
      if (made.axes.size() == s->axes.size()) continue;
      Id body = kNone, condition = kNone;
      for (Id x : made.factors) body = times(body, x);
      for (Id c : made.conditions) condition = condition == kNone ? c : a_.land(condition, c);
      return a_.reduce(Op::sum, made.axes, condition, body);
    }
    return d.body;
  }

  // An axis and a number.
  std::optional<std::pair<Id, int64_t>> place(Id bound) const {
    const Linear l = linear(a_, bound);
    if (l.terms.size() != 1 || l.terms.begin()->second != 1 || a_[l.terms.begin()->first].op != Op::axis) return {};
    return std::pair(l.terms.begin()->first, l.constant);
  }

  bool turned(Sum& s, size_t middle) {
    const AxisRange j = s.axes[middle];
    const auto begin = place(j.begin), end = place(j.end);
    if (!begin || !end) return false;
    const auto k = std::ranges::find(s.axes, begin->first, &AxisRange::axis), t = std::ranges::find(s.axes, end->first, &AxisRange::axis);
    if (k == s.axes.end() || t == s.axes.end() || k == t) return false;
    const int64_t p = begin->second, q = end->second;
    if (p < 0 || q > 1 || !is_constant(a_, k->begin, 0) || !a_[t->end].free_axes().empty()) return false;
    const int64_t places = number(t->end) + q - 1;
    // What else is known of k and t follows from the place between them.
    const auto below = place(k->end), above = place(t->begin);
    if (below && is_constant(a_, t->begin, 0)) {
      if (below->first != t->axis || q - p > below->second) return false;
    } else if (above && a_[k->end].free_axes().empty()) {
      if (above->first != k->axis || p - q + 1 < above->second || places - p > number(k->end)) return false;
    } else {
      return false;
    }
    for (const AxisRange& r : s.axes)
      if (r.axis != j.axis && r.axis != k->axis && r.axis != t->axis)
        for (Id x : {j.axis, k->axis, t->axis})
          if (has(r.begin, x) || has(r.end, x)) return false;
    // Counted from the first place that has one before it.
    const AxisRange all{j.axis, a_.integer(0), a_.integer(places - p)};
    const AxisRange before{k->axis, a_.integer(0), a_.add(j.axis, a_.integer(1))};
    const AxisRange behind{t->axis, tidy_index(a_, a_.add(j.axis, a_.integer(p - q + 1))), t->end};
    const Replacements from_first = {{j.axis, tidy_index(a_, a_.add(j.axis, a_.integer(p)))}};
    for (Id& x : s.factors) x = substitute(a_, x, from_first);
    for (Id& c : s.conditions) c = substitute(a_, c, from_first);
    std::vector<AxisRange> axes = {all, before, behind};
    for (const AxisRange& r : s.axes)
      if (r.axis != j.axis && r.axis != before.axis && r.axis != behind.axis) axes.push_back(r);
    s.axes = std::move(axes);
    return true;
  }

  // ---- sums inside of sums ----

  // The sum over one of several axes, if it runs; d is left with what is outside.
  std::optional<Definition> inner_of(Definition* d) {
    auto s = sum_of(*d);
    if (!s || s->axes.size() < 2) return {};
    auto range_of = [&](Id axis) -> const AxisRange* {
      for (const auto* list : {&d->axes, &s->axes})
        if (auto at = std::ranges::find(*list, axis, &AxisRange::axis); at != list->end()) return &*at;
      return nullptr;
    };
    for (const AxisRange& r : s->axes) {
      const auto m = moving(r);
      if (!m || std::ranges::any_of(s->axes, [&](const AxisRange& x) { return has(x.begin, r.axis) || has(x.end, r.axis); })) continue;
      Id body = kNone, condition = kNone, outer = kNone, outside = kNone;
      for (Id x : s->factors) (has(x, r.axis) ? body : outer) = times(has(x, r.axis) ? body : outer, x);
      for (Id x : s->conditions) {
        Id& side = has(x, r.axis) ? condition : outside;
        side = side == kNone ? x : a_.land(side, x);
      }
      if (body == kNone || !runs(body, condition, *m, r.axis)) continue;
      const Id sum = a_.reduce(Op::sum, std::span(&r, 1), condition, body);
      std::vector<AxisRange> axes;
      double elements = 1;
      bool plain = true;
      for (const auto* list : {&d->axes, &s->axes})
        for (const AxisRange& x : *list)
          if (has(sum, x.axis)) {
            axes.push_back(x);
            plain = plain && range_is_plain(a_, x);
            if (plain) elements *= static_cast<double>(number(x.end));
          }
      const AxisRange* with = range_of(m->with);
      if (!plain || !with || number(with->end) < kLongRange || elements > kMost) continue;
      Definition inner = define(*d, axes, sum);
      std::vector<AxisRange> others;
      for (const AxisRange& x : s->axes)
        if (x.axis != r.axis) others.push_back(x);
      const Id value = a_.read(inner.target(), a_[sum].type, fusion::indices_of(axes));
      d->body = a_.reduce(Op::sum, others, outside, times(outer, value));
      return inner;
    }
    return {};
  }

  // Will the sum over `term` be a running one: by prefix_sums.h, or by recurrences.h?
  bool runs(Id body, Id condition, const Moving& m, Id term) {
    Id rest = kNone;
    bool between = false, far = false;
    for (Id x : operands_of(a_, body, Op::mul)) {
      if (has(x, m.with) && fusion::interval_product(p_, sizes_, x, m.suffix ? m.with : term, m.suffix ? term : m.with))
        between = true;
      else if (!far && counts_distance(x, m, term))
        far = true;
      else
        rest = times(rest, x);
    }
    const bool apart = !has(rest, m.with) && !has(condition, m.with);
    if (far) return !between && (repeated(rest, condition, m, term, 0) || repeated(rest, condition, m, term, nearest(m)));
    return apart || (!between && rest != kNone && pair(rest, condition, m, term, nearest(m)));
  }

  std::optional<fusion::PairTerm> pair(Id body, Id condition, const Moving& m, Id term, int64_t nearest) {
    return fusion::pair_term(p_, sizes_, body, condition == kNone ? a_.boolean(true) : condition, m.with, term, m.suffix, nearest);
  }

  // ---- terms that count by their distance ----

  // The weights of such a sum, whose factor t - k is left out: those of the distance alone, of t-k-1 places if `less`.
  struct Repeated {
    fusion::PairTerm pair;
    bool less = false;
  };
  // from: the distance from which they count, 0 or that of the nearest term.
  std::optional<Repeated> repeated(Id body, Id condition, const Moving& m, Id term, int64_t from) {
    if (body == kNone) return {};
    std::vector<Id> conditions;
    if (condition != kNone) conditions = conjuncts(a_, condition);
    // Where the distance is 0 nothing is counted anyway.
    std::erase_if(conditions,
                  [&](Id c) { return a_[c].op == Op::ne && is_distance(a_[c].arg(0), m, term) && is_constant(a_, a_[c].arg(1), 0); });
    Repeated made;
    Id rest = kNone, counts = kNone, weight = kNone;
    for (Id x : operands_of(a_, body, Op::mul)) {
      const Node n = a_[x];
      // d^(t-k-1) as d^(t-k).
      const bool less = from == 0 && n.op == Op::pow && a_[n.arg(1)].op == Op::sub && is_distance(a_[n.arg(1)].arg(0), m, term) &&
                        is_constant(a_, a_[n.arg(1)].arg(1), 1);
      if (less && weight != kNone) return {};
      if (less) weight = x = a_.binary(Op::pow, n.arg(0), a_[n.arg(1)].arg(0)), made.less = true;
      rest = times(rest, x);
    }
    for (Id c : conditions) counts = counts == kNone ? c : a_.land(counts, c);
    auto found = pair(rest, counts, m, term, from);
    if (!found || found->weights.empty() || !std::ranges::all_of(found->weights, &fusion::PairWeight::of_distance)) return {};
    if (made.less && found->weights.size() != 1) return {};
    made.pair = std::move(*found);
    return made;
  }

  void as_repeated(Definition* d, std::vector<Definition>* all) {
    const auto s = sum_of(*d);
    if (!s || s->axes.size() != 1) return;
    const AxisRange r = s->axes[0];
    const auto m = moving(r);
    if (!m || m->by < 0 || m->by > 1) return;
    const auto at = std::ranges::find(d->axes, m->with, &AxisRange::axis);
    if (at == d->axes.end() || !range_is_plain(a_, *at)) return;
    const int64_t places = number(at->end);
    if (places < kLongRange || (m->suffix && number(r.end) != places)) return;
    Id rest = kNone, condition = kNone;
    std::optional<int64_t> from;
    for (Id x : s->factors)
      if (!from && counts_distance(x, *m, r.axis))
        from = is_distance(x, *m, r.axis) ? 0 : nearest(*m);
      else
        rest = times(rest, x);
    if (!from) return;
    for (Id c : s->conditions) condition = condition == kNone ? c : a_.land(condition, c);
    const auto found = repeated(rest, condition, *m, r.axis, *from);
    if (!found) return;
    const Id t = m->with, k = r.axis;
    const DType type = a_[d->body].type;
    const int64_t behind = *from + 1;
    Id weight = kNone, nearest = kNone;  // of t - k places, of one
    for (const fusion::PairWeight& w : found->pair.weights) {
      const Id distance = a_.mul(a_.integer(w.rate), m->suffix ? a_.sub(k, t) : a_.sub(t, k));
      weight = times(weight, w.over(a_, a_.cast(a_[w.base].type, distance)));
      nearest = times(nearest, w.over(a_, a_.constant(a_[w.base].type, static_cast<double>(w.rate))));
    }
    const AxisRange range = m->suffix ? AxisRange{k, t, at->end} : AxisRange{k, a_.integer(0), a_.add(t, a_.integer(1))};
    std::vector<AxisRange> axes;
    for (const AxisRange& x : d->axes)
      if (x.axis == t || has(weight, x.axis) || has(found->pair.term, x.axis)) axes.push_back(x);
    Id term = found->pair.term;
    Id place = kNone;
    for (int i = 0; i < 2; ++i) {
      all->push_back(define(*d, axes, a_.reduce(Op::sum, std::span(&range, 1), kNone, a_.mul(term, weight))));
      auto read_at = [&](Id where) {
        std::vector<Id> indices = fusion::indices_of(axes);
        std::ranges::replace(indices, t, where);
        return indices;
      };
      if (i == 0)
        term = a_.read(all->back().target(), type, read_at(k));
      else
        place = a_.read_or(all->back().target(), type, read_at(a_.add(t, a_.integer(m->suffix ? behind : -behind))), a_.constant(type, 0));
    }
    d->body = times(times(found->pair.outer, found->less ? kNone : nearest), place);
  }

  Program p_;
  Arena& a_;
  const DimValues& sizes_;
};

}  // namespace

Program running_sums_apart(const Program& p, const DimValues& sizes, const PlanRequest& request) {
  return request.options.policy != FusePolicy::relay ? RunningParts(p, sizes).run() : p;
}

}  // namespace xhat
