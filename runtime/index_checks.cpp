#include "runtime/index_checks.h"

#include <algorithm>
#include <unordered_map>

#include "cse/auto_inliner.h"
#include "cse/path_conditions.h"

namespace xhat::runtime {
namespace {

bool depends_on_data(const Arena& a, Id index) {
  return std::ranges::any_of(reachable(a, index), [&](Id id) { return is_read(a[id].op); });
}

// Under which condition each node of a body is evaluated: any of the ways that lead to it.
std::unordered_map<Id, Id> conditions(Arena& a, Id root) {
  auto narrow = [&](Id x, Id y) { return is_true(a, x) ? y : is_true(a, y) ? x : a.land(x, y); };
  auto join = [&](Id& known, Id other) {
    if (known == other || is_true(a, known)) return;
    known = is_true(a, other) ? other : a.binary(Op::lor, known, other);
  };
  return known_on_paths(a, root, a.boolean(true), narrow, join);
}

Id bad_index(Program& p, const Definition& d) {
  Arena& a = *p.arena;
  Id bad = kNone;
  auto when = conditions(a, d.body);
  for (Id id : reachable(a, d.body)) {
    const Node n = a[id];
    if (n.op != Op::read) continue;
    for (size_t i = 0; i < n.arg_count; ++i) {
      Id index = n.arg(i);
      if (!depends_on_data(a, index)) continue;
      Id at = a.to(DType::i64, index);
      Id outside = a.binary(Op::lor, a.binary(Op::lt, at, a.integer(0)),
                            a.binary(Op::le, p.tensors[n.symbol].shape[i], at));
      Id condition = when.at(id);
      if (!is_true(a, condition)) outside = a.select(condition, outside, a.boolean(false));
      bad = bad == kNone ? outside : a.binary(Op::lor, bad, outside);
    }
  }
  return bad;
}

}  // namespace

std::optional<Program> index_checks(const Program& direction) {
  Program p = direction;
  std::vector<TensorId> checks;
  std::vector<Definition> made;
  for (const Definition& d : direction.body.definitions) {
    Id bad = bad_index(p, d);
    if (bad == kNone) continue;
    std::vector<AxisRange> axes = d.axes;
    const Node& root = (*p.arena)[d.body];
    if (is_reduction(root.op))
      for (const AxisRange& r : reduce_axes(root)) axes.push_back(r);
    Definition check;
    check.targets = {p.add_tensor("bad_index_" + p.tensors[d.target()].name, DType::boolean, {})};
    check.body = axes.empty() ? bad : p.arena->reduce(Op::any, axes, kNone, bad);
    checks.push_back(check.target());
    made.push_back(check);
  }
  if (made.empty()) return std::nullopt;
  p.body.definitions.insert(p.body.definitions.end(), made.begin(), made.end());
  p.outputs = checks;
  return without_dead(inline_injective(without_dead(p)));
}

}  // namespace xhat::runtime
