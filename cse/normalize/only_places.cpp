#include "cse/normalize/only_places.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "cse/normalize/ranges.h"
#include "expr/index/plain_bounds.h"

namespace xhat {
namespace {

// Per dimension of each tensor, the one place where all reads of it are. None: there are several, an axis walks it, or it may have no such place:
// reads of t[1] under `if 1 < N` are none where N is 1.
std::map<TensorId, std::vector<std::optional<int64_t>>> only_places(const Program& p) {
  const Arena& a = *p.arena;
  std::map<TensorId, std::vector<std::optional<int64_t>>> found;
  for (const Definition& d : p.definitions()) {
    if (d.is_call()) continue;
    for (Id id : reachable(a, d.body)) {
      const Node& n = a[id];
      if (!is_read(n.op)) continue;
      std::vector<std::optional<int64_t>> at;
      for (size_t k = 0; k < read_indices(n).size(); ++k) {
        const Id index = read_indices(n)[k];
        const bool is_there = n.op == Op::read && surely_inside(a, index, p.tensors[n.symbol].shape[k], {});
        at.push_back(is_there ? literal(a, index) : std::nullopt);
      }
      const auto [it, first] = found.emplace(n.symbol, at);
      for (size_t k = 0; k < at.size(); ++k)
        if (it->second[k] != at[k]) it->second[k] = std::nullopt;
    }
  }
  return found;
}

}  // namespace

Program at_only_places(const Program& given) {
  Program p = given;
  Arena& a = *p.arena;
  auto places = only_places(p);
  std::set<TensorId> own;  // what a definition makes for the others
  for (const Definition& d : p.definitions())
    if (!d.is_call()) own.insert(d.target());
  for (const std::vector<TensorId>* delivered : {&p.outputs, &p.gradients})
    for (TensorId t : *delivered) own.erase(t);
  std::erase_if(places, [&](const auto& of) {
    return !own.contains(of.first) || std::ranges::none_of(of.second, [](const auto& place) { return place.has_value(); });
  });
  if (places.empty()) return given;
  for (Definition& d : p.definitions()) {
    if (d.is_call()) return given;
    d.body = rewrite(a, d.body, [&](Id id) {
      const Node n = a[id];
      const auto found = n.op == Op::read ? places.find(n.symbol) : places.end();
      if (found == places.end()) return id;
      std::vector<Id> indices(n.args().begin(), n.args().end());
      for (size_t k = 0; k < indices.size(); ++k)
        if (found->second[k]) indices[k] = a.integer(0);
      return a.with_args(id, indices);
    });
    const auto found = places.find(d.target());
    if (found == places.end()) continue;
    Replacements at;
    for (size_t k = 0; k < d.axes.size(); ++k)
      if (found->second[k]) {
        at[d.axes[k].axis] = a.integer(*found->second[k]);
        d.axes[k] = {d.axes[k].axis, a.integer(0), a.integer(1)};
        p.tensors[d.target()].shape[k] = a.integer(1);
      }
    if (!at.empty()) d.body = substitute(a, d.body, at);
  }
  return p;
}

}  // namespace xhat
