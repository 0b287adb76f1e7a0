#include "ad/common/guards.h"

#include <algorithm>

#include "expr/index/affine.h"

namespace xhat {
namespace {

// `if c then d else false`: && evaluates both sides, so a d that may only be read where c holds is written
// like this.
bool is_guarded_condition(const Arena& a, Id id) {
  const Node& n = a[id];
  return n.op == Op::select && is_false(a, n.arg(2));
}

}  // namespace

bool contains(std::span<const Id> ids, Id id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

bool depends_on(const Arena& a, Id expression, std::span<const Id> axes) {
  for (Id axis : a[expression].free_axes())
    if (contains(axes, axis)) return true;
  return false;
}

void add_literals(const Arena& a, Literals& literals, Id condition) {
  if (condition == kNone) return;
  std::vector<Id> stack{condition};
  while (!stack.empty()) {
    Id id = stack.back();
    stack.pop_back();
    if (a[id].op == Op::land || is_guarded_condition(a, id)) {
      stack.push_back(a[id].arg(1));
      stack.push_back(a[id].arg(0));
    } else if (!is_true(a, id) && !contains(literals, id)) {
      literals.push_back(id);
    }
  }
}

// An axis is inside by its own range, unless `before` says something of it; any other place may be inside for what `before` says of sizes.
bool reads_what_is_guarded(const Arena& a, Id before, Id condition) {
  auto may_leave = [&](Id place) { return a[place].op != Op::axis || depends_on(a, place, a[before].free_axes()); };
  return std::ranges::any_of(reachable(a, condition), [&](Id id) {
    const Op op = a[id].op;
    return op == Op::argmax || op == Op::argmin || (is_read(op) && std::ranges::any_of(read_indices(a[id]), may_leave));
  });
}

void positions_first(const Arena& a, Literals& literals) {
  std::ranges::stable_partition(literals, [&](Id x) { return tensors_read(a, x).empty(); });
}

Id conjunction(Arena& a, std::span<const Id> literals) {
  Id all = kNone;
  for (Id id : literals) {
    if (all == kNone)
      all = id;
    else if (reads_what_is_guarded(a, all, id))
      all = a.select(all, id, a.boolean(false));
    else
      all = a.land(all, id);
  }
  return all;
}

Id guarded(Arena& a, std::span<const Id> literals, Id value) {
  if (literals.empty()) return value;
  Id zero = a.constant(a[value].type, 0);
  if (value == zero) return value;
  Id all = conjunction(a, literals);
  if (a[all].op == Op::lnot) return a.select(a[all].arg(0), zero, value);
  return a.select(all, value, zero);
}

bool reads_inside(Arena& a, const Program& p, Id expression, std::span<const AxisRange> axes, std::span<const Id> known) {
  std::vector<Id> affine;
  for (Id c : known)
    for (Id part : conjuncts(a, c))
      if (is_about_positions(a, part)) affine.push_back(part);
  for (Id id : reachable(a, expression)) {
    const Node n = a[id];
    if (n.op != Op::read) continue;
    for (size_t i = 0; i < n.arg_count; ++i) {
      BoundsQuestion q{axes, affine, a.to(DType::i64, n.arg(i)), p.tensors[n.symbol].shape[i]};
      if (prove_bounds(a, q).verdict != BoundsAnswer::Verdict::proved) return false;
    }
  }
  return true;
}

SplitGuards split_guards(Arena& a, const Program& p, const Literals& conditions, std::span<const Id> bound,
                         std::span<const AxisRange> around) {
  SplitGuards s;
  for (Id x : conditions) {
    bool stays = depends_on(a, x, bound) || (!bound.empty() && !reads_inside(a, p, x, around, s.outer));
    (stays ? s.inner : s.outer).push_back(x);
  }
  return s;
}

Id disjunction(Arena& a, Id x, Id y) {
  if (x == kNone || y == kNone || is_true(a, x) || is_true(a, y)) return kNone;
  if (x == y) return x;
  if (negation(a, x) == y || negation(a, y) == x) return kNone;
  const Node &p = a[x], &q = a[y];
  if (p.op == Op::lt && q.op == Op::eq) {
    bool same = p.arg(0) == q.arg(0) && p.arg(1) == q.arg(1);
    bool swapped = p.arg(0) == q.arg(1) && p.arg(1) == q.arg(0);
    if (same || swapped) return a.binary(Op::le, p.arg(0), p.arg(1));
  }
  return a.binary(Op::lor, x, y);
}

}  // namespace xhat
