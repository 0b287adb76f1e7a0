#include "expr/core/permuted.h"

namespace xhat {

Program with_permuted_axes(const Program& p, const std::map<TensorId, Permutation>& orders) {
  if (orders.empty()) return p;
  Program q = p;
  Arena& a = *q.arena;
  for (const auto& [t, order] : orders) q.tensors[t].shape = permuted(q.tensors[t].shape, order);
  for (Definition& d : q.definitions()) {
    if (d.is_call()) continue;
    d.axes = permuted(d.axes, orders, d.target());
    d.body = rewrite(a, d.body, [&](Id id) {
      const Node n = a[id];
      if (!is_read(n.op) || !orders.contains(n.symbol)) return id;
      const auto indices = read_indices(n);
      const std::vector<Id> at = permuted(std::vector<Id>(indices.begin(), indices.end()), orders, n.symbol);
      return n.op == Op::read ? a.read(n.symbol, n.type, at) : a.read_or(n.symbol, n.type, at, n.args().back());
    });
  }
  return q;
}

}  // namespace xhat
