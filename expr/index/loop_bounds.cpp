#include "expr/index/loop_bounds.h"

#include <algorithm>

namespace xhat {
namespace {

// The terms of a sum of integers, with their signs.
void collect(const Arena& a, Id id, bool negative, std::vector<std::pair<Id, bool>>* terms) {
  const Node& n = a[id];
  if (n.op == Op::add || n.op == Op::sub) {
    collect(a, n.arg(0), negative, terms);
    collect(a, n.arg(1), n.op == Op::sub ? !negative : negative, terms);
  } else if (n.op == Op::neg) {
    collect(a, n.arg(0), !negative, terms);
  } else {
    terms->emplace_back(id, negative);
  }
}

}  // namespace

std::vector<Id> conjuncts_of(const Arena& a, Id condition) {
  if (condition == kNone || is_true(a, condition)) return {};
  const Node& n = a[condition];
  const bool chosen = n.op == Op::select && a[n.arg(2)].op == Op::constant && a[n.arg(2)].integer == 0;
  if (n.op != Op::land && !chosen) return {condition};
  std::vector<Id> all = conjuncts_of(a, n.arg(0));
  for (Id c : conjuncts_of(a, n.arg(1))) all.push_back(c);
  return all;
}

bool bound_by(Arena& a, Id condition, Id axis, LoopBounds* bounds) {
  const Op op = a[condition].op;
  if (op != Op::lt && op != Op::le && op != Op::eq) return false;
  if (!is_integer(a[a[condition].arg(0)].type)) return false;
  std::vector<std::pair<Id, bool>> terms;  // of right - left
  collect(a, a[condition].arg(1), false, &terms);
  collect(a, a[condition].arg(0), true, &terms);
  int factor = 0;
  for (auto [id, negative] : terms) {
    if (a[id].type != DType::i64) return false;
    if (id == axis)
      factor += negative ? -1 : 1;
    else if (a[id].depends_on(axis))
      return false;
  }
  if (factor != 1 && factor != -1) return false;
  // factor * axis + rest >= (lt: 1, else 0). What the axis is compared with is rest if the factor is -1, else -rest.
  Id sum = kNone;
  int64_t number = 0;
  for (bool subtracted : {false, true})
    for (auto [id, negative] : terms) {
      if (id == axis || (negative != (factor > 0)) != subtracted) continue;
      if (a[id].op == Op::constant)
        number += subtracted ? -a[id].integer : a[id].integer;
      else if (sum == kNone)
        sum = subtracted ? a.unary(Op::neg, id) : id;
      else
        sum = subtracted ? a.sub(sum, id) : a.add(sum, id);
    }
  auto plus = [&](int64_t more) {
    if (sum == kNone) return a.integer(number + more);
    if (number + more == 0) return sum;
    return number + more < 0 ? a.sub(sum, a.integer(-(number + more))) : a.add(sum, a.integer(number + more));
  };
  const int64_t strict = op == Op::lt ? 1 : 0;
  if (factor > 0 || op == Op::eq) bounds->begins.push_back(plus(factor > 0 ? strict : 0));
  if (factor < 0 || op == Op::eq) bounds->ends.push_back(plus(1 - (factor < 0 ? strict : 0)));
  return true;
}

Id place_by(Arena& a, Id condition, Id axis) {
  LoopBounds bounds;
  return a[condition].op == Op::eq && bound_by(a, condition, axis, &bounds) ? bounds.begins.back() : kNone;
}

Id moving_begin(const Arena& a, const AxisRange& r, const std::function<int64_t(Id)>& value) {
  auto moves = [&](Id bound) { return !a[bound].free_axes().empty(); };
  if (std::ranges::none_of(operands_of(a, r.end, Op::minimum), moves)) return kNone;
  const auto begins = operands_of(a, r.begin, Op::maximum);
  const auto first = std::ranges::find_if(begins, [&](Id bound) { return moves(bound) && value(bound) == value(r.begin); });
  return first == begins.end() ? kNone : *first;
}

}  // namespace xhat
