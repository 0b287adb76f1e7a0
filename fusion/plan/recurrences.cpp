#include "fusion/plan/recurrences.h"

#include <algorithm>
#include <optional>

#include "cse/normalize/auto_inliner.h"
#include "expr/core/conditions.h"
#include "expr/core/scalar.h"
#include "expr/index/linear.h"
#include "fusion/plan/interval_products.h"
#include "fusion/plan/running.h"

namespace xhat {
namespace {

constexpr int64_t kResultsWorthIt = 16;  // below, all pairs in vectors take less than a loop in order
constexpr int64_t kBetween = 4;          // factors that even the nearest term has, at most

class Recurrences {
 public:
  Recurrences(const Program& p, const DimValues& sizes) : p_(p), a_(*p.arena), sizes_(sizes) {}

  Program run() {
    std::vector<Definition> all;
    bool changed = false;
    for (const Definition& d : std::vector<Definition>(p_.forward.definitions)) {
      const auto walk = matched(d);
      changed = changed || walk;
      if (walk)
        split(d, *walk, &all);
      else
        all.push_back(d);
    }
    if (!changed) return p_;
    p_.forward.definitions = std::move(all);
    return without_dead(p_);  // products between all places, of which nobody asks any more
  }

 private:
  // The result of the axis `axis` at i is s[i + offset], with
  //   s[u] = factor(u) * s[u-1] + term(u)     for u in 0..count; of a product, without a term and from 1 on
  //   s[u] = factor(u) * s[u+1] + term(u)     if it falls.
  // Both as expressions of the axis, which stands for u. Of the first place there is no factor if there is a term.
  struct Walk {
    size_t axis = 0;
    bool falls = false;
    int64_t count = 0, offset = 0;
    Id factor = kNone, term = kNone;
    Id outer = kNone;  // times this, at the result
  };

  int64_t number(Id extent) const { return evaluate_extent(a_, extent, sizes_); }
  Id plus(Id x, int64_t n) { return n == 0 ? x : tidy_index(a_, a_.add(x, a_.integer(n))); }
  Id times(Id x, Id y) { return x == kNone ? y : a_.mul(x, y); }

  std::optional<Walk> matched(const Definition& d) {
    if (d.is_call()) return {};
    const Node root = a_[d.body];
    if (root.op != Op::prod && root.op != Op::sum) return {};
    const DType type = a_[reduce_body(root)].type;
    if ((type != DType::f32 && type != DType::f64) || p_.tensor(d.target()).type != type) return {};
    const auto moving = fusion::moving_end(p_, sizes_, d);
    if (!moving) return {};
    const AxisRange terms = reduce_axes(root)[0];
    const auto [axis, by, falls, other, condition] = *moving;
    const int64_t results = number(d.axes[axis].end);
    Walk w{.axis = axis, .falls = falls};
    const int64_t first = falls ? by : other;  // term of the place 0
    w.count = falls ? other - by : results - 1 + by - first;
    w.offset = falls ? 0 : by - first - 1;
    if (std::min(w.count, results) < kResultsWorthIt) return {};
    const Id result = d.axes[axis].axis, body = reduce_body(root);
    auto at_place = [&](Id e, Id of, int64_t shift) { return substitute(a_, e, {{of, plus(result, shift)}}); };
    if (root.op == Op::prod) {
      if (a_[body].depends_on(result) || a_[condition].depends_on(result)) return {};
      const Id counts = is_true(a_, condition) ? body : a_.select(condition, body, a_.constant(type, 1));
      w.factor = at_place(counts, terms.axis, first);
      return w;
    }
    if (a_[condition].depends_on(result)) return {};
    Id term = kNone;
    for (Id x : operands_of(a_, body, Op::mul)) {
      if (!a_[x].depends_on(result)) {
        term = times(term, at_place(x, terms.axis, first));
      } else if (!a_[x].depends_on(terms.axis)) {
        w.outer = times(w.outer, x);
      } else if (auto between = fusion::interval_product(p_, sizes_, x, falls ? result : terms.axis, falls ? terms.axis : result)) {
        // Factors of the step to a place, and those that its own term has already.
        const int64_t step = falls ? between->first : first - by + between->end;
        const int64_t own = between->end - between->first + (falls ? by : 1 - by);
        if (own < 0 || own > kBetween) return {};
        w.factor = times(w.factor, at_place(between->factor, between->axis, step));
        const int64_t begin = falls ? between->first : first + between->first;
        for (int64_t j = 0; j < own; ++j) term = times(term, at_place(between->factor, between->axis, begin + j));
      } else {
        return {};
      }
    }
    if (w.factor == kNone) return {};
    if (term == kNone) term = a_.constant(type, 1);
    w.term = is_true(a_, condition) ? term : a_.select(at_place(condition, terms.axis, first), term, a_.constant(type, 0));
    return w;
  }

  void split(const Definition& d, const Walk& w, std::vector<Definition>* all) {
    const DType type = a_[w.factor].type;
    const std::string name = p_.tensor(d.target()).name;
    const Id u = d.axes[w.axis].axis;
    std::vector<AxisRange> axes;
    size_t place = 0;
    for (size_t i = 0; i < d.axes.size(); ++i) {
      if (i == w.axis) {
        place = axes.size();
        axes.push_back({u, a_.integer(0), a_.integer(w.count)});
      } else if (a_[w.factor].depends_on(d.axes[i].axis) || (w.term != kNone && a_[w.term].depends_on(d.axes[i].axis))) {
        axes.push_back(d.axes[i]);
      }
    }
    const Id nothing = a_.constant(type, w.term == kNone ? 1 : 0);
    // Of the first place no factor is asked for, and it may lie outside.
    auto in_loop = [&](Id e, const char* what) {
      if (evaluation_cost_ps(a_, e) <= fusion::kAgain_ps) return e;
      all->push_back(fusion::defined_over(p_, d, name + what, axes, e));
      return a_.read(all->back().target(), type, fusion::indices_of(axes));
    };
    Id factor = w.factor;
    if (w.term != kNone) {
      const Id first = a_.eq(u, a_.integer(w.falls ? w.count - 1 : 0));
      factor = a_.select(first, a_.constant(type, 0), reading_anywhere(factor, u));
    }
    factor = in_loop(factor, "_factors");
    const Id term = w.term == kNone ? kNone : in_loop(w.term, "_terms");
    const bool same = w.offset == 0 && w.outer == kNone && axes.size() == d.axes.size() && number(d.axes[w.axis].end) == w.count;
    const TensorId made = same ? d.target() : p_.add_tensor(name + "_walk", type, fusion::extents_of(axes));
    std::vector<Id> before = fusion::indices_of(axes);
    before[place] = plus(u, w.falls ? 1 : -1);
    const Id carried = a_.mul(a_.read_or(made, type, before, nothing), factor);
    Definition walk = d;
    walk.targets = {made};
    if (!same) walk.axes = axes;
    walk.body = term == kNone ? carried : a_.add(carried, term);
    all->push_back(walk);
    if (same) return;
    Definition result = d;
    std::vector<Id> there = fusion::indices_of(axes);
    there[place] = plus(u, w.offset);
    const bool inside = w.offset == 0 && number(d.axes[w.axis].end) <= w.count;
    result.body = inside ? a_.read(made, type, there) : a_.read_or(made, type, there, nothing);
    if (w.outer != kNone) result.body = a_.mul(w.outer, result.body);
    all->push_back(result);
  }

  // Its reads at the place may lie outside, where nobody looks at them.
  Id reading_anywhere(Id root, Id place) {
    return rewrite(a_, root, [&](Id id) {
      const Node n = a_[id];
      if (n.op != Op::read || !a_[id].depends_on(place)) return id;
      const std::vector<Id> indices(n.args().begin(), n.args().end());
      if (std::ranges::find(indices, place) != indices.end()) return id;
      return a_.read_or(n.symbol, n.type, indices, a_.constant(n.type, 0));
    });
  }

  Program p_;
  Arena& a_;
  const DimValues& sizes_;
};

}  // namespace

Program ranges_as_recurrences(const Program& p, const DimValues& sizes, const PlanRequest& request) {
  return request.options.policy != FusePolicy::relay ? Recurrences(p, sizes).run() : p;
}

}  // namespace xhat
