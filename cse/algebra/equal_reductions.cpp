#include "cse/algebra/equal_reductions.h"

#include <algorithm>
#include <map>
#include <set>

#include "cse/match/bodies.h"

namespace xhat {
namespace {

// Which axis of y each axis of x is, if the two are equal then.
std::optional<std::map<Id, Id>> correspondence(const Arena& a, Id x, Id y) {
  std::map<Id, Id> axis;
  std::set<Id> taken;
  std::set<std::pair<Id, Id>> seen;
  std::vector<std::pair<Id, Id>> open = {{x, y}};
  while (!open.empty()) {
    auto [u, v] = open.back();
    open.pop_back();
    if (!seen.insert({u, v}).second) continue;
    const Node &m = a[u], &n = a[v];
    if (m.op != n.op || m.type != n.type || m.arg_count != n.arg_count) return std::nullopt;
    if (m.op == Op::axis) {
      auto [it, fresh] = axis.try_emplace(u, v);
      if (it->second != v || (fresh && !taken.insert(v).second)) return std::nullopt;
      continue;
    }
    if (m.arg_count == 0 && u != v) return std::nullopt;
    if (is_read(m.op) && m.symbol != n.symbol) return std::nullopt;
    for (size_t i = 0; i < m.arg_count; ++i) open.push_back({m.arg(i), n.arg(i)});
  }
  return axis;
}

// For each dimension of x the dimension of y that it is, if y's values are x's.
std::optional<std::vector<size_t>> dimensions(const Arena& a, const Definition& x, const Definition& y) {
  if (x.axes.size() != y.axes.size()) return std::nullopt;
  auto axis = correspondence(a, x.body, y.body);
  if (!axis) return std::nullopt;
  std::vector<size_t> at;
  for (const AxisRange& r : x.axes) {
    auto it = axis->find(r.axis);
    if (it == axis->end()) return std::nullopt;
    AxisRange same{it->second, r.begin, r.end};
    auto found = std::ranges::find(y.axes, same);
    if (found == y.axes.end()) return std::nullopt;
    at.push_back(static_cast<size_t>(found - y.axes.begin()));
  }
  return at;
}

}  // namespace

Program reuse_equal_reductions(const Program& p) {
  Program out = p;
  Arena& a = *out.arena;
  struct Instead {
    TensorId tensor;
    std::vector<size_t> at;
  };
  std::map<TensorId, Instead> instead;
  std::vector<const Definition*> known;
  for (const Definition& d : out.forward.definitions)
    if (is_reduction(a[d.body].op)) known.push_back(&d);
  for (Definition& d : out.backward.definitions) {
    if (!instead.empty())
      d.body = rewrite(a, d.body, [&](Id id) {
        const Node n = a[id];
        auto it = is_read(n.op) ? instead.find(n.symbol) : instead.end();
        if (it == instead.end()) return id;
        std::vector<Id> indices;
        for (size_t i : it->second.at) indices.push_back(n.arg(i));
        if (n.op == Op::read) return a.read(it->second.tensor, n.type, indices);
        return a.read_or(it->second.tensor, n.type, indices, n.args().back());
      });
    if (!is_reduction(a[d.body].op)) continue;
    if (!has_tensor(out.gradients, d.target()))
      for (const Definition* k : known)
        if (auto at = dimensions(a, *k, d)) {
          instead[d.target()] = {k->target(), *at};
          break;
        }
    if (!instead.contains(d.target())) known.push_back(&d);
  }
  return instead.empty() ? p : without_dead(out);
}

}  // namespace xhat
