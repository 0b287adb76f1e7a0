// Ranges are written only where inference would not find them again.
#include <algorithm>
#include <set>
#include <unordered_set>

#include "expr/text/reify_expression.h"

namespace xhat {

// Would elaboration find this range in these places?
bool range_is_inferred(const Program& p, const AxisRange& r, std::span<const Id> places) {
  const Arena& a = *p.arena;
  if (!is_constant(a, r.begin, 0)) return false;
  std::vector<Id> stack;
  std::unordered_set<Id> seen;
  auto visit = [&](Id x) {
    if (a[x].depends_on(r.axis) && seen.insert(x).second) stack.push_back(x);
  };
  for (Id x : places) visit(x);
  std::set<Id> plain, with_else;
  while (!stack.empty()) {
    const Node& n = a[stack.back()];
    stack.pop_back();
    for (Id x : n.args()) visit(x);
    if (!is_read(n.op)) continue;
    std::span<const Id> indices = read_indices(n);
    for (size_t d = 0; d < indices.size(); ++d)
      if (indices[d] == r.axis) (n.op == Op::read ? plain : with_else).insert(p.tensors[n.symbol].shape[d]);
  }
  const std::set<Id>& found = plain.empty() ? with_else : plain;
  return found.size() == 1 && *found.begin() == r.end;
}

std::vector<ast::Axis> reify_left_axes(const Program& p, ast::File& file, const std::vector<AxisRange>& axes,
                                       Id body) {
  std::vector<ast::Axis> result;
  for (const AxisRange& r : axes) {
    ast::Axis axis{p.arena->name(r.axis), ast::kAbsent, ast::kAbsent, {}};
    if (!range_is_inferred(p, r, std::span<const Id>(&body, 1))) {
      axis.begin = reify_expression(p, file, r.begin, {}, false);
      axis.end = reify_expression(p, file, r.end, {}, false);
    }
    result.push_back(std::move(axis));
  }
  return result;
}

}  // namespace xhat
