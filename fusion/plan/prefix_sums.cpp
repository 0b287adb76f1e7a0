#include "fusion/plan/prefix_sums.h"

#include <algorithm>
#include <optional>

#include "cse/normalize/auto_inliner.h"
#include "expr/core/scalar.h"
#include "expr/index/linear.h"
#include "fusion/plan/prefix_terms.h"
#include "fusion/plan/running.h"

namespace xhat {
namespace {

constexpr int64_t kReads = 4;              // of a step
constexpr int64_t kWorthIt = 96;           // elements: below, all pairs in vectors take less than the steps' copies
constexpr int64_t kWorthItInBlocks = 224;  // the same of products of matrices, whose pairs are multiplied and added in registers
constexpr int64_t kLanes = 8;              // columns that make it one
constexpr int64_t kWorthWeighing = 32;     // the same where each pair has a power or an exponential, or nothing is copied

class Prefixes {
 public:
  Prefixes(const Program& p, const DimValues& sizes, bool walks) : p_(p), a_(*p.arena), sizes_(sizes), walks_(walks) {}

  Program run() {
    std::vector<Definition> all;
    for (const Definition& d : std::vector<Definition>(p_.forward.definitions)) {
      if (auto prefix = matched(d))
        split(d, *prefix, &all);
      else
        all.push_back(d);
    }
    p_.forward.definitions = std::move(all);
    return std::move(p_);
  }

 private:
  // Over the elements from `first` to the axis + last (or from the axis + first to the end, if it is a suffix).
  struct Prefix {
    size_t axis;  // of d.axes
    AxisRange terms;
    int64_t first = 0;   // of the terms
    int64_t count = 0;   // terms in all
    int64_t offset = 0;  // y[i] is the step's value at i + offset
    bool suffix = false;
    // Of weighted terms.
    fusion::PairTerm pair;
    int64_t beyond = 0;  // from the nearest term to its result
    bool walks = false;  // one place after the other, and not in steps
    bool weighted() const { return !pair.weights.empty(); }
  };

  int64_t number(Id extent) const { return evaluate_extent(a_, extent, sizes_); }

  std::optional<Prefix> matched(const Definition& d) {
    if (d.is_call()) return {};
    const Node& root = a_[d.body];
    if (root.op != Op::sum && root.op != Op::max && root.op != Op::min) return {};
    const DType type = a_[reduce_body(root)].type;
    const bool counts = (type == DType::i32 || type == DType::i64) && root.op == Op::sum;  // offsets of segments
    if ((type != DType::f32 && type != DType::f64 && !counts) || p_.tensor(d.target()).type != type) return {};
    const auto moving = fusion::moving_end(p_, sizes_, d);
    if (!moving) return {};
    Prefix f{.axis = moving->axis, .terms = reduce_axes(root)[0], .suffix = moving->begins, .pair = {}};
    const int64_t results = number(d.axes[f.axis].end);
    f.first = f.suffix ? moving->by : moving->fixed;
    f.count = f.suffix ? moving->fixed - f.first : results - 1 + moving->by - f.first;
    f.offset = f.suffix ? 0 : moving->by - f.first - 1;
    const Id result = d.axes[f.axis].axis, body = reduce_body(root), condition = moving->condition;
    auto has = [&](Id e, Id axis) { return a_[e].depends_on(axis); };
    const bool plain = !has(condition, result) && !has(body, result);
    if (plain && !has(body, f.terms.axis)) return {};
    if (plain) {
      f.pair.term = is_true(a_, condition) ? body : a_.select(condition, body, a_.constant(type, identity_of(root.op)));
      f.walks = vectors_behind(d, f);
    }
    const int64_t worth = f.walks || !plain ? kWorthWeighing : is_product(d) ? kWorthItInBlocks : kWorthIt;
    if (std::min(f.count, results) < worth) return {};
    if (plain) return f;
    if (root.op != Op::sum || counts) return {};
    f.beyond = f.suffix ? moving->by : 1 - moving->by;
    auto pair = fusion::pair_term(p_, sizes_, body, condition, result, f.terms.axis, f.suffix, f.beyond);
    if (!pair) return {};
    f.pair = std::move(*pair);
    // Levels and ties are looked at where results are.
    const bool in_step = f.first == 0 && f.offset == 0 && f.beyond == 0 && f.count == results;
    const bool of_distance = std::ranges::all_of(f.pair.weights, &fusion::PairWeight::of_distance);
    if (!in_step && (f.beyond < 0 || !of_distance)) return {};
    f.walks = vectors_behind(d, f);
    return f;
  }

  // Is each term a number by its row times one by its column, sum(u in 0..t+1: g[u,d]*v[u,e])?
  bool is_product(const Definition& d) const {
    const Node root = a_[d.body], term = a_[reduce_body(root)];
    if (root.op != Op::sum || term.op != Op::mul) return false;
    auto alone = [&](Id one, Id other) {
      return std::ranges::any_of(d.axes, [&](const AxisRange& r) {
        auto has = [&](Id e) { return a_[e].depends_on(r.axis); };
        return has(one) && !has(other) && number(r.end) >= kLanes;
      });
    };
    return alone(term.arg(0), term.arg(1)) && alone(term.arg(1), term.arg(0));
  }

  // Do the terms, or their weights, depend on it?
  bool runs_over(const Prefix& f, Id axis) const {
    auto has = [&](Id e) { return e != kNone && a_[e].depends_on(axis); };
    return has(f.pair.term) || std::ranges::any_of(f.pair.weights, [&](const auto& w) { return has(w.base) || has(w.level); });
  }

  void split(const Definition& d, const Prefix& f, std::vector<Definition>* all) {
    const Node root = a_[d.body];
    const DType type = a_[reduce_body(root)].type;
    const std::string name = p_.tensor(d.target()).name;
    const Id nothing = a_.constant(type, identity_of(root.op));
    const Id u = d.axes[f.axis].axis;  // over the terms, in the place of the axis
    std::vector<AxisRange> axes;
    size_t place = 0;
    for (size_t i = 0; i < d.axes.size(); ++i) {
      if (i == f.axis) {
        place = axes.size();
        axes.push_back({u, a_.integer(0), a_.integer(f.count)});
      } else if (runs_over(f, d.axes[i].axis)) {
        axes.push_back(d.axes[i]);
      }
    }
    auto at = [&](TensorId t, Id where) {
      std::vector<Id> indices = fusion::indices_of(axes);
      indices[place] = where;
      return a_.read_or(t, type, indices, nothing);
    };
    const std::vector<Id> weights = f.walks ? weights_to_the_next(f) : weights_of(d, f, all);
    const Id element = f.first == 0 ? u : a_.add(u, a_.integer(f.first));
    const Id term_here = substitute(a_, f.pair.term, {{f.terms.axis, element}});
    const bool in_loop = f.walks && evaluation_cost_ps(a_, term_here) <= fusion::kAgain_ps;
    if (!in_loop) all->push_back(fusion::defined_over(p_, d, name + "_terms", axes, term_here));
    if (f.walks) {
      const Id terms = in_loop ? term_here : a_.read(all->back().target(), type, fusion::indices_of(axes));
      const bool same = f.offset == 0 && f.pair.outer == kNone && axes.size() == d.axes.size() && number(d.axes[f.axis].end) == f.count;
      walk(d, f, weights, terms, axes, place, same, all);
      if (same) return;
    }
    int64_t number_of_step = 0;
    for (int64_t step = 1; step < f.count && !f.walks; step *= kReads, ++number_of_step) {
      const Id t = f.terms.axis, shift = step == 1 ? t : a_.mul(a_.integer(step), t);
      const Id place_of_term = f.suffix ? a_.add(u, shift) : a_.sub(u, shift);
      Id term = at(all->back().target(), place_of_term), inside = kNone;
      if (f.weighted()) {
        const Id carried = weighed(f, weights, term, u, place_of_term, a_.add(t, a_.integer(number_of_step * kReads)));
        term = a_.select(a_.eq(t, a_.integer(0)), term, carried);
        inside = f.suffix ? a_.binary(Op::lt, place_of_term, a_.integer(f.count)) : a_.binary(Op::le, a_.integer(0), place_of_term);
      }
      const std::vector<AxisRange> reads = {{t, a_.integer(0), a_.integer(std::min(kReads, (f.count + step - 1) / step))}};
      all->push_back(fusion::defined_over(p_, d, name + "_step", axes, a_.reduce(root.op, reads, inside, term)));
    }
    Definition result = d;
    const TensorId last = all->back().target();
    const Id there = f.offset == 0 ? u : a_.add(u, a_.integer(f.offset));
    const bool inside = f.offset == 0 && number(d.axes[f.axis].end) <= f.count;
    result.body = inside ? a_.read(last, type, fusion::indices_of(axes)) : at(last, there);
    if (f.pair.outer != kNone) {
      const Id product = a_.mul(f.pair.outer, result.body);
      // A sum of nothing is 0, whatever it is multiplied by.
      const Id has_terms = a_.land(a_.binary(Op::le, a_.integer(0), there), a_.binary(Op::lt, there, a_.integer(f.count)));
      result.body = inside ? product : a_.select(has_terms, product, a_.constant(type, 0));
    }
    all->push_back(result);
  }

  // Do axes behind the running one, which the terms depend on, fill vectors while it is walked?
  bool vectors_behind(const Definition& d, const Prefix& f) const {
    int64_t elements = 1;
    for (size_t i = f.axis + 1; i < d.axes.size(); ++i)
      if (runs_over(f, d.axes[i].axis)) elements *= number(d.axes[i].end);
    return walks_ && elements >= kLanes;
  }

  // One after the other, each from the one before: y[u] = w*y[u-1 else 0] + terms[u], as recurrences.h has them.
  // itself: the result is what is walked.
  void walk(const Definition& d, const Prefix& f, const std::vector<Id>& weights, Id terms, const std::vector<AxisRange>& axes,
            size_t place, bool itself, std::vector<Definition>* all) {
    const DType type = p_.tensor(d.target()).type;
    const std::string name = p_.tensor(d.target()).name;
    const Op op = a_[d.body].op;
    const Id u = axes[place].axis, before = a_.add(u, a_.integer(f.suffix ? 1 : -1)), nothing = a_.constant(type, identity_of(op));
    const TensorId made = itself ? d.target() : p_.add_tensor(name + "_walk", type, fusion::extents_of(axes));
    std::vector<Id> indices = fusion::indices_of(axes);
    indices[place] = before;
    Id carried = a_.read_or(made, type, indices, nothing);
    if (f.weighted()) {
      const Id first = a_.eq(u, a_.integer(f.suffix ? f.count - 1 : 0));
      const Id weight = a_.select(first, nothing, weighed(f, weights, a_.constant(type, 1), u, before, a_.integer(0)));
      std::vector<AxisRange> of_weight;
      for (const AxisRange& r : axes)
        if (a_[weight].depends_on(r.axis)) of_weight.push_back(r);
      all->push_back(fusion::defined_over(p_, d, name + "_weights", of_weight, weight));
      const Id factor = a_.read(all->back().target(), type, fusion::indices_of(of_weight));
      // Where nothing is carried on, what was may be infinite.
      carried = a_.select(a_.eq(factor, nothing), nothing, a_.mul(carried, factor));
    }
    Definition walk = d;
    walk.targets = {made};
    if (!itself) walk.axes = axes;
    walk.body = op == Op::sum ? a_.add(carried, terms) : a_.binary(op == Op::max ? Op::maximum : Op::minimum, carried, terms);
    all->push_back(walk);
  }
  // The weight of one place, per weight of the distance. kNone: it is none of the distance.
  std::vector<Id> weights_to_the_next(const Prefix& f) {
    std::vector<Id> weights;
    for (const fusion::PairWeight& w : f.pair.weights)
      weights.push_back(w.of_distance() ? w.over(a_, a_.constant(a_[w.base].type, static_cast<double>(w.rate))) : kNone);
    return weights;
  }

  // What all steps multiply by, per weight of the distance: [4*step + t, …] is that of 4^step * t places. kNone: it is none of the distance.
  std::vector<Id> weights_of(const Definition& d, const Prefix& f, std::vector<Definition>* all) {
    std::vector<Id> reads;
    for (const fusion::PairWeight& w : f.pair.weights) {
      reads.push_back(kNone);
      if (!w.of_distance()) continue;
      const DType type = a_[w.base].type;
      const Id s = f.terms.axis;
      Id distance = a_.integer(0);
      int64_t powers = 0, step = 1;
      for (; step < f.count; step *= kReads, powers += kReads) {
        const Id here = a_.mul(a_.integer(step), a_.sub(s, a_.integer(powers)));
        distance = powers == 0 ? here : a_.select(a_.binary(Op::lt, s, a_.integer(powers)), distance, here);
      }
      std::vector<AxisRange> axes = {{s, a_.integer(0), a_.integer(powers)}};
      for (const AxisRange& r : d.axes)
        if (a_[w.base].depends_on(r.axis)) axes.push_back(r);
      const Id exponent = a_.cast(type, w.rate == 1 ? distance : a_.mul(a_.integer(w.rate), distance));
      all->push_back(fusion::defined_over(p_, d, p_.tensor(d.target()).name + "_powers", axes, w.over(a_, exponent)));
      reads.back() = a_.read(all->back().target(), type, fusion::indices_of(axes));
    }
    return reads;
  }

  // What is summed up at `from`, as it counts at `to`. power: the place of the step's power among all.
  Id weighed(const Prefix& f, const std::vector<Id>& powers, Id value, Id to, Id from, Id power) {
    const DType type = a_[value].type;
    const Id zero = a_.constant(type, 0);
    for (size_t i = 0; i < powers.size(); ++i) {
      const fusion::PairWeight& w = f.pair.weights[i];
      if (w.of_distance()) {
        value = a_.mul(substitute(a_, powers[i], {{f.terms.axis, power}}), value);
        continue;
      }
      const Id there = reading_anywhere(substitute(a_, w.level, {{to, from}}), from);
      if (w.kind == fusion::PairWeight::Kind::same) {
        value = a_.select(a_.eq(w.level, there), value, zero);
        continue;
      }
      // From an infinite level nothing is carried on to a finite one: where all before are masked, their sum is NaN.
      // At most 1, also where sums of large numbers are rounded so that the level rises.
      const Id weight = a_.unary(Op::exp, a_.binary(Op::minimum, a_.sub(w.level, there), zero));
      const Id nothing = a_.land(a_.eq(weight, zero), a_.unary(Op::lnot, a_.unary(Op::isfinite, there)));
      value = a_.select(nothing, zero, a_.mul(weight, value));
    }
    return value;
  }

  // Its reads at the place may lie outside, where nobody looks at them.
  Id reading_anywhere(Id root, Id place) {
    return rewrite(a_, root, [&](Id id) {
      const Node n = a_[id];
      if (n.op != Op::read || std::ranges::find(n.args(), place) == n.args().end()) return id;
      const std::vector<Id> indices(n.args().begin(), n.args().end());
      return a_.read_or(n.symbol, n.type, indices, a_.constant(n.type, 0));
    });
  }

  Program p_;
  Arena& a_;
  const DimValues& sizes_;
  const bool walks_;  // on a GPU steps are many threads' work, and a walk is one's
};

}  // namespace

Program prefix_sums_by_steps(const Program& p, const DimValues& sizes, const PlanRequest& request) {
  return request.options.policy == FusePolicy::full ? Prefixes(p, sizes, request.machine.tiles_in_order).run() : p;
}

}  // namespace xhat
