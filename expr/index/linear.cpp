#include "expr/index/linear.h"

#include <algorithm>

namespace xhat {

void add_scaled(Linear& to, const Linear& from, int64_t scale) {
  to.constant += scale * from.constant;
  for (auto [node, k] : from.terms)
    if ((to.terms[node] += scale * k) == 0) to.terms.erase(node);
}

Linear linear(const Arena& a, Id index) {
  std::map<Id, Linear> done;
  for (Id id : reachable(a, index)) {
    const Node& n = a[id];
    Linear l;
    auto sub = [&](size_t i) -> const Linear& { return done.at(n.arg(i)); };
    bool whole = n.type == DType::i64;
    if (n.op == Op::constant && is_integer(n.type))
      l.constant = n.integer;
    else if (whole && n.op == Op::neg)
      add_scaled(l, sub(0), -1);
    else if (whole && (n.op == Op::add || n.op == Op::sub)) {
      l = sub(0);
      add_scaled(l, sub(1), n.op == Op::add ? 1 : -1);
    } else if (whole && n.op == Op::mul && sub(0).terms.empty())
      add_scaled(l, sub(1), sub(0).constant);
    else if (whole && n.op == Op::mul && sub(1).terms.empty())
      add_scaled(l, sub(0), sub(1).constant);
    else
      l.terms[id] = 1;
    done[id] = std::move(l);
  }
  return done.at(index);
}

Id to_index(Arena& a, const Linear& l) {
  Id value = kNone;
  auto put = [&](Id node, int64_t k) {
    int64_t size = k < 0 ? -k : k;
    Id term = size == 1 ? node : a.mul(a.integer(size), node);
    if (value == kNone)
      value = k < 0 ? a.unary(Op::neg, term) : term;
    else
      value = k < 0 ? a.sub(value, term) : a.add(value, term);
  };
  for (auto [node, k] : l.terms)
    if (k > 0) put(node, k);
  if (value == kNone && l.constant != 0)
    value = a.integer(l.constant);
  else if (l.constant > 0)
    value = a.add(value, a.integer(l.constant));
  else if (l.constant < 0)
    value = a.sub(value, a.integer(-l.constant));
  for (auto [node, k] : l.terms)
    if (k < 0) put(node, k);
  return value == kNone ? a.integer(0) : value;
}

Id without_common_parts(Arena& a, Id comparison) {
  const Node n = a[comparison];
  if (!is_comparison(n.op) || a[n.arg(0)].type != DType::i64) return comparison;
  const Linear left = linear(a, n.arg(0)), right = linear(a, n.arg(1));
  const bool common = std::ranges::any_of(left.terms, [&](const auto& term) { return right.terms.contains(term.first); });
  if (!common) return comparison;
  Linear more = right, below, above;
  add_scaled(more, left, -1);
  for (auto [node, times] : more.terms) (times > 0 ? above : below).terms[node] = std::abs(times);
  (more.constant > 0 ? above : below).constant = std::abs(more.constant);
  return a.binary(n.op, to_index(a, below), to_index(a, above));
}

Id tidy_index(Arena& a, Id index) {
  const Node& n = a[index];
  if (n.op != Op::add && n.op != Op::sub && n.op != Op::mul && n.op != Op::neg) return index;
  return n.type == DType::i64 ? to_index(a, linear(a, index)) : index;
}

}  // namespace xhat
