#include "cse/algebra/equal_reductions.h"

#include <algorithm>
#include <map>
#include <set>

#include "cse/match/bodies.h"
#include "cse/match/same_but_for_names.h"

namespace xhat {
namespace {

// For each dimension of x the dimension of y that it is, if y's values are x's.
std::optional<std::vector<size_t>> dimensions(const Arena& a, const Definition& x, const Definition& y) {
  if (x.axes.size() != y.axes.size()) return std::nullopt;
  const auto axis = same_but_for_names(a, {{x.body, y.body}});
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

Program reuse_equal_reductions(const Program& p, const std::optional<std::vector<TensorId>>& kept) {
  Program out = p;
  Arena& a = *out.arena;
  struct Instead {
    TensorId tensor;
    std::vector<size_t> at;
  };
  std::map<TensorId, Instead> instead;
  std::multimap<size_t, const Definition*> known;
  for (const Definition& d : out.forward.definitions)
    if (is_reduction(a[d.body].op) && (!kept || has_tensor(*kept, d.target()))) known.emplace(key_without_names(a, d.body), &d);
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
    const size_t key = key_without_names(a, d.body);
    const auto [first, last] = known.equal_range(key);
    if (!has_tensor(out.gradients, d.target()))
      for (auto it = first; it != last; ++it)
        if (auto at = dimensions(a, *it->second, d)) {
          instead[d.target()] = {it->second->target(), *at};
          break;
        }
    if (!instead.contains(d.target())) known.emplace(key, &d);
  }
  return instead.empty() ? p : without_dead(out);
}

}  // namespace xhat
