#include "cse/algebra/idle_sums.h"

#include "cse/algebra/reduction_algebra.h"
#include "expr/rules/simplify.h"

namespace xhat {

// Tensors that stand elsewhere than in terms and factors.
static std::set<TensorId> not_linear(const Arena& a, Id body) {
  std::set<TensorId> found;
  for (Id id : reachable(a, body)) {
    const Node& n = a[id];
    for (size_t i = 0; i < n.arg_count; ++i) {
      const bool term = n.op == Op::add || n.op == Op::sub || n.op == Op::neg || n.op == Op::mul || n.op == Op::cast;
      if (term || ((n.op == Op::div || n.op == Op::sum) && i == 0) || (n.op == Op::select && i > 0)) continue;
      for (TensorId t : tensors_read(a, n.arg(i))) found.insert(t);
    }
  }
  return found;
}

Program without_idle_sums(const Program& p) {
  const Arena& a = *p.arena;
  std::set<TensorId> opaque;
  for (const Definition& d : p.backward.definitions) {
    const Node n = a[d.body];
    if (n.op == Op::sum && !has_tensor(p.gradients, d.target()) && !tensors_read(a, reduce_condition(n)).empty()) opaque.insert(d.target());
  }
  if (opaque.empty()) return p;
  const MultipliedOut proof = multiplied_out(p, opaque);
  std::set<TensorId> idle = proof.zeros;
  std::erase_if(idle, [&](TensorId t) { return has_tensor(p.gradients, t); });
  for (const Definition& d : proof.program.backward.definitions)
    for (TensorId t : tensors_read(a, d.body)) opaque.erase(t);
  idle.insert(opaque.begin(), opaque.end());
  if (idle.empty() && proof.zero_sums.empty()) return p;
  std::map<TensorId, PointValue> known = proof.terms_of_forward;
  std::erase_if(known, [&](const auto& each) { return idle.contains(each.first); });
  // What cancels may have any value. It is 0, but where that would be divided by.
  std::set<TensorId> divisors;
  for (const Definition& d : p.backward.definitions)
    for (TensorId t : not_linear(a, d.body))
      if (opaque.contains(t)) divisors.insert(t);
  Program result = p;
  for (Definition& d : result.backward.definitions) {
    d.body = rewrite(*p.arena, d.body, [&](Id id) { return proof.zero_sums.contains(id) ? p.arena->constant(a[id].type, 0) : id; });
    d.body = inline_reads(*p.arena, d.body, known, d.axes);
    d.body = rewrite(*p.arena, d.body, [&](Id id) {
      const Node n = a[id];
      return n.op == Op::read && idle.contains(n.symbol) ? p.arena->constant(n.type, divisors.contains(n.symbol)) : id;
    });
  }
  return simplify_reductions(simplify(without_dead(result)));
}

}  // namespace xhat
