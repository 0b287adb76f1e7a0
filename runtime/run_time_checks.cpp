#include "runtime/run_time_checks.h"

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

Id either(Arena& a, Id x, Id y) { return x == kNone ? y : y == kNone ? x : a.binary(Op::lor, x, y); }

// The test, where the node is evaluated at all.
Id where(Arena& a, Id condition, Id test) {
  return is_true(a, condition) ? test : a.select(condition, test, a.boolean(false));
}

Id bad_index(const Program& p, Id read, Id when) {
  Arena& a = *p.arena;
  const Node n = a[read];
  Id bad = kNone;
  for (size_t i = 0; i < n.arg_count; ++i) {
    Id index = n.arg(i);
    if (!depends_on_data(a, index)) continue;
    Id at = a.to(DType::i64, index);
    Id outside = a.binary(Op::lor, a.binary(Op::lt, at, a.integer(0)), a.binary(Op::le, p.tensors[n.symbol].shape[i], at));
    bad = either(a, bad, where(a, when, outside));
  }
  return bad;
}

// Does an argmax run over nothing? kNone: it never does.
Id over_nothing(Arena& a, Id extreme, Id when) {
  const Node n = a[extreme];
  AxisRange r = reduce_axes(n)[0];
  Id condition = reduce_condition(n);
  if (is_true(a, condition) && a[r.begin].op == Op::constant && a[r.end].op == Op::constant && a[r.begin].integer < a[r.end].integer)
    return kNone;
  Id nothing = is_true(a, condition) ? a.binary(Op::le, r.end, r.begin)
                                     : a.unary(Op::lnot, a.reduce(Op::any, std::vector{r}, kNone, condition));
  return where(a, when, nothing);
}

// What sizes alone decide: a box of these axes has points at all of which the test is the same.
bool is_of_sizes(const Arena& a, Id test, const std::vector<AxisRange>& axes) {
  auto plain = [&](Id e) {
    return a[e].axes_count == 0 &&
           std::ranges::none_of(reachable(a, e), [&](Id id) { return is_read(a[id].op) || is_reduction(a[id].op); });
  };
  return plain(test) && std::ranges::all_of(axes, [&](const AxisRange& r) { return plain(r.begin) && plain(r.end); });
}

// Does the test hold anywhere? Of axes that it does not depend on only whether there is a step counts: the rows of an embedding
// bag are found once, not once for each of their elements (20,480 indices of rows of 128: 500 -> 3 us).
Id anywhere(Arena& a, const std::vector<AxisRange>& axes, Id test) {
  auto on = [&](Id e, Id axis) { return std::ranges::binary_search(a[e].free_axes(), axis); };
  auto needed = [&](const AxisRange& r) {
    bool bounds = std::ranges::any_of(axes, [&](const AxisRange& s) { return on(s.begin, r.axis) || on(s.end, r.axis); });
    return on(test, r.axis) || bounds || a[r.begin].axes_count + a[r.end].axes_count > 0;
  };
  std::vector<AxisRange> walked;
  Id found = a.boolean(true);
  for (const AxisRange& r : axes) {
    if (needed(r)) walked.push_back(r);
    else found = a.land(found, a.binary(Op::lt, r.begin, r.end));
  }
  Id held = walked.empty() ? test : a.reduce(Op::any, walked, kNone, test);
  return is_true(a, found) ? held : a.land(held, found);
}

// A definition's own reduction binds axes of what stands in it.
void add_checks(Checks& checks, Program& p, const Definition& d) {
  Arena& a = *p.arena;
  auto when = conditions(a, d.body);
  std::vector<AxisRange> inside = d.axes;
  if (is_reduction(a[d.body].op))
    for (const AxisRange& r : reduce_axes(a[d.body])) inside.push_back(r);
  Id outer = kNone, inner = kNone;
  for (Id id : reachable(a, d.body)) {
    Op op = a[id].op;
    Id& bad = id == d.body ? outer : inner;
    const std::vector<AxisRange>& axes = id == d.body ? d.axes : inside;
    if (op == Op::read) bad = either(a, bad, bad_index(p, id, when.at(id)));
    if (op != Op::argmax && op != Op::argmin) continue;
    Id nothing = over_nothing(a, id, when.at(id));
    if (nothing != kNone && is_of_sizes(a, nothing, axes)) {
      for (const AxisRange& r : axes) nothing = a.land(nothing, a.binary(Op::lt, r.begin, r.end));
      checks.of_sizes.push_back(nothing);
    } else {
      bad = either(a, bad, nothing);
    }
  }
  auto any = [&](const std::vector<AxisRange>& axes, Id bad) { return bad == kNone ? bad : anywhere(a, axes, bad); };
  Id bad = either(a, any(d.axes, outer), any(inside, inner));
  if (bad == kNone) return;
  Definition check;
  check.targets = {p.add_tensor("fails_" + p.tensors[d.target()].name, DType::boolean, {})};
  check.body = bad;
  checks.of_data->outputs.push_back(check.target());
  checks.of_data->body.definitions.push_back(check);
}

}  // namespace

Checks run_time_checks(const Program& direction) {
  Checks checks;
  Program& p = checks.of_data.emplace(direction);
  p.outputs.clear();
  for (const Definition& d : direction.body.definitions) add_checks(checks, p, d);
  if (p.outputs.empty())
    checks.of_data.reset();
  else
    p = without_dead(inline_injective(without_dead(p)));
  return checks;
}

}  // namespace xhat::runtime
