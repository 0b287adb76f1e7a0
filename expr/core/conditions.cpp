#include "expr/core/conditions.h"

#include <algorithm>
#include <unordered_set>

namespace xhat {
namespace {

struct Part {
  Id condition;
  bool holds;
};

std::vector<Id> parts(Arena& a, Part whole) {
  std::vector<Part> stack{whole};
  std::vector<Id> leaves;
  while (!stack.empty()) {
    const auto [id, holds] = stack.back();
    stack.pop_back();
    const Node& n = a[id];
    auto both = [&](Part first, Part second) { stack.insert(stack.end(), {second, first}); };
    if (n.op == Op::lnot)
      stack.push_back({n.arg(0), !holds});
    else if (n.op == (holds ? Op::land : Op::lor))
      both({n.arg(0), holds}, {n.arg(1), holds});
    else if (n.op == Op::select && (holds ? is_false(a, n.arg(2)) : is_true(a, n.arg(2))))
      both({n.arg(0), true}, {n.arg(1), holds});
    else if (n.op == Op::select && (holds ? is_false(a, n.arg(1)) : is_true(a, n.arg(1))))
      both({n.arg(0), false}, {n.arg(2), holds});
    else
      leaves.push_back(holds ? id : negation(a, id));
  }
  return leaves;
}

}  // namespace

bool is_false(const Arena& a, Id id) {
  return a[id].op == Op::constant && a[id].type == DType::boolean && a[id].integer == 0;
}

Id negation(Arena& a, Id condition) {
  const Node n = a[condition];
  if (n.op == Op::lnot) return n.arg(0);
  if (n.op == Op::eq) return a.binary(Op::ne, n.arg(0), n.arg(1));
  if (n.op == Op::ne) return a.binary(Op::eq, n.arg(0), n.arg(1));
  if ((n.op == Op::lt || n.op == Op::le) && is_integer(a[n.arg(0)].type))
    return a.binary(n.op == Op::lt ? Op::le : Op::lt, n.arg(1), n.arg(0));
  return a.unary(Op::lnot, condition);
}

bool is_about_positions(const Arena& a, Id condition) {
  if (a[condition].op == Op::constant) return true;
  std::vector<Id> stack{condition};
  std::unordered_set<Id> seen;
  while (!stack.empty()) {
    const Id id = stack.back();
    stack.pop_back();
    if (!seen.insert(id).second || a[id].op == Op::constant) continue;  // false, of: if x then y else false
    const Node& n = a[id];
    bool joined = n.op == Op::land || n.op == Op::lor || n.op == Op::lnot || (n.op == Op::select && n.type == DType::boolean);
    if (joined)
      stack.insert(stack.end(), n.args().begin(), n.args().end());
    else if (std::ranges::none_of(reachable(a, id), [&](Id x) { return is_read(a[x].op) || is_reduction(a[x].op); }))
      return true;
  }
  return false;
}

std::vector<Id> conjuncts(Arena& a, Id condition) { return parts(a, {condition, true}); }
std::vector<Id> negated_conjuncts(Arena& a, Id condition) { return parts(a, {condition, false}); }

Id with_plain_bounds(Arena& a, Id condition) {
  auto one_more = [&](Id id, Op op) { return a[id].op == op && is_constant(a, a[id].arg(1), 1); };
  return rewrite(a, condition, [&](Id id) {
    const Node n = a[id];
    if ((n.op != Op::lt && n.op != Op::le) || a[n.arg(0)].type != DType::i64 || !is_about_positions(a, id)) return id;
    if (n.op == Op::lt && one_more(n.arg(1), Op::add)) return a.binary(Op::le, n.arg(0), a[n.arg(1)].arg(0));
    if (n.op == Op::lt && one_more(n.arg(0), Op::sub)) return a.binary(Op::le, a[n.arg(0)].arg(0), n.arg(1));
    if (n.op == Op::le && one_more(n.arg(1), Op::sub)) return a.binary(Op::lt, n.arg(0), a[n.arg(1)].arg(0));
    if (n.op == Op::le && one_more(n.arg(0), Op::add)) return a.binary(Op::lt, a[n.arg(0)].arg(0), n.arg(1));
    return id;
  });
}

}  // namespace xhat
