#include "fusion/plan/interval_products.h"

#include <algorithm>

#include "expr/core/conditions.h"
#include "expr/index/linear.h"

namespace xhat::fusion {
namespace {

class Intervals {
 public:
  Intervals(const Program& p, const DimValues& sizes, Id from, Id to) : p_(p), a_(*p.arena), sizes_(sizes), from_(from), to_(to) {}

  std::optional<IntervalProduct> of(Id read) {
    const Node n = a_[read];
    if (n.op != Op::read && n.op != Op::read_or) return {};
    const Definition* d = p_.definition_of(n.symbol);
    if (!d || d->is_call() || a_[d->body].op != Op::prod) return {};
    const auto indices = read_indices(n);
    Replacements here;
    for (size_t i = 0; i < indices.size(); ++i) {
      // What a read gives outside its tensor is none of this.
      if (n.op == Op::read_or && a_[indices[i]].op != Op::axis) return {};
      here[d->axes[i].axis] = indices[i];
    }
    const Node root = a_[d->body];
    if (reduce_axes(root).size() != 1) return {};
    AxisRange r = reduce_axes(root)[0];
    const Id axis = a_.fresh_axis(r.axis, std::vector<Id>{from_, to_});
    const Id begin = substitute(a_, r.begin, here), end = substitute(a_, r.end, here);
    here[r.axis] = axis;
    Id factor = substitute(a_, reduce_body(root), here);
    const Id condition = substitute(a_, reduce_condition(root), here);
    const auto first = places_after(begin, from_), last = places_after(end, to_);
    if (!first || !last || a_[factor].depends_on(from_) || a_[factor].depends_on(to_)) return {};
    if (!is_true(a_, condition))
      for (Id c : conjuncts(a_, condition)) {
        if (!a_[c].depends_on(from_) && !a_[c].depends_on(to_))
          factor = a_.select(c, factor, a_.constant(a_[factor].type, 1));
        else if (!holds(c, *first, *last))
          return {};
      }
    return IntervalProduct{factor, axis, *first, *last};
  }

 private:

  // bound - axis, if that is a number.
  std::optional<int64_t> places_after(Id bound, Id axis) const {
    const Linear l = linear(a_, bound);
    int64_t rest = l.constant;
    bool found = false;
    for (auto [node, k] : l.terms) {
      if (node == axis && k == 1)
        found = true;
      else if (a_[node].free_axes().empty() && tensors_read(a_, node).empty())
        rest += k * evaluate_extent(a_, node, sizes_);
      else
        return {};
    }
    return found ? std::optional(rest) : std::nullopt;
  }

  // Does it hold wherever from + first <= to + end, the range having one place at least, or does nobody ask elsewhere? The range with no
  // place is 1 with the condition and without.
  bool holds(Id condition, int64_t first, int64_t end) const {
    const Node& n = a_[condition];
    if (n.op != Op::le && n.op != Op::lt) return false;
    Linear difference = linear(a_, n.arg(1));
    add_scaled(difference, linear(a_, n.arg(0)), -1);
    int64_t rest = difference.constant - (n.op == Op::lt), of_to = 0, of_from = 0;
    for (auto [node, k] : difference.terms) {
      if (node == to_)
        of_to += k;
      else if (node == from_)
        of_from += k;
      else if (a_[node].free_axes().empty() && tensors_read(a_, node).empty())
        rest += k * evaluate_extent(a_, node, sizes_);
      else
        return false;
    }
    // to - from >= first - end + 1 where there is a place.
    return of_to == -of_from && of_to >= 0 && rest + of_to * (first - end + 1) >= 0;
  }

  const Program& p_;
  Arena& a_;
  const DimValues& sizes_;
  Id from_, to_;
};

}  // namespace

std::optional<IntervalProduct> interval_product(const Program& p, const DimValues& sizes, Id read, Id from, Id to) {
  return Intervals(p, sizes, from, to).of(read);
}

}  // namespace xhat::fusion
