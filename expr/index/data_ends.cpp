#include "expr/index/data_ends.h"

#include <algorithm>

#include "expr/core/conditions.h"
#include "expr/index/affine_poly.h"
#include "expr/index/linear.h"

namespace xhat {

std::optional<int64_t> step_along(Arena& a, Id index, Id axis) {
  try {
    affine::Poly p = affine::polynomial_through_divisions(a, index, affine::Poly::atom), rest = p.without(axis);
    bool elsewhere = std::ranges::any_of(
        rest.terms, [&](const auto& term) { return std::ranges::any_of(term.first, [&](Id x) { return a[x].depends_on(axis); }); });
    if (!elsewhere) return p.coefficient(axis);
  } catch (const affine::GaveUp&) {
    // A number that was a float: what stands beside it.
    const Linear l = linear(a, index);
    if (std::ranges::all_of(l.terms, [&](const auto& term) { return term.first == axis || !a[term.first].depends_on(axis); }))
      return l.terms.contains(axis) ? l.terms.at(axis) : 0;
  }
  return {};
}

bool compares_place_with_data(const Arena& a, Id condition) {
  const Node& n = a[condition];
  if ((n.op != Op::lt && n.op != Op::le && n.op != Op::eq) || a[n.arg(0)].type != DType::i64) return false;
  auto is_place = [&](Id x) { return std::ranges::none_of(reachable(a, x), [&](Id y) { return is_read(a[y].op); }); };
  return is_place(n.arg(0)) != is_place(n.arg(1)) && !a[n.arg(is_place(n.arg(0)) ? 0 : 1)].free_axes().empty();
}

bool is_end_by_data(Arena& a, Id condition, Id axis) {
  if (a[condition].op == Op::eq || !compares_place_with_data(a, condition)) return false;
  const Node n = a[condition];
  auto place = [&](size_t side) { return !a[n.arg(1 - side)].depends_on(axis) && step_along(a, n.arg(side), axis).value_or(0) != 0; };
  return place(0) || place(1);
}

bool in_segments(Arena& a, Id condition, Id places, std::span<const Id> by) {
  const std::vector<Id> parts = conjuncts(a, condition);
  return std::ranges::count_if(parts, [&](Id part) {
           return a[part].depends_on(places) && is_end_by_data(a, part, places) &&
                  std::ranges::any_of(by, [&](Id y) { return y != places && a[part].depends_on(y); });
         }) > 1;
}

}  // namespace xhat
