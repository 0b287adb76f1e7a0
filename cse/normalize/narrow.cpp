#include "cse/normalize/narrow.h"

#include <algorithm>
#include <map>
#include <optional>
#include <ranges>
#include <set>

#include "cse/match/bodies.h"

namespace xhat {
namespace {

// Per dimension of a tensor, the end of the ranges that reads walk; kNone: they don't agree, or one is no plain walk.
using Ends = std::vector<std::optional<Id>>;

struct Reads {
  const Arena& a;
  std::map<TensorId, Ends> ends;

  void look(const Definition& d) {
    std::map<Id, AxisRange> ranges;
    std::set<Id> several;  // axes of two ranges
    auto add = [&](const AxisRange& r) {
      auto [it, fresh] = ranges.emplace(r.axis, r);
      if (!fresh && (it->second.begin != r.begin || it->second.end != r.end)) several.insert(r.axis);
    };
    std::ranges::for_each(d.axes, add);
    std::vector<Id> roots = {d.body};
    for (const AxisRange& r : d.axes) roots.insert(roots.end(), {r.begin, r.end});
    const std::vector<Id> nodes = reachable(a, roots);
    for (Id id : nodes)
      if (is_reduction(a[id].op)) std::ranges::for_each(reduce_axes(a[id]), add);
    for (Id id : nodes) {
      const Node& n = a[id];
      if (!is_read(n.op)) continue;
      const auto indices = read_indices(n);
      Ends& known = ends.try_emplace(n.symbol, Ends(indices.size())).first->second;
      for (size_t i = 0; i < indices.size(); ++i) {
        auto r = ranges.find(indices[i]);
        const bool one = n.op == Op::read && r != ranges.end() && !several.contains(r->first);
        const bool walks = one && range_is_plain(a, r->second);
        const Id end = walks ? r->second.end : kNone;
        known[i] = known[i].value_or(end) == end ? end : kNone;
      }
    }
  }
};

// Reads may walk further than the tensor goes, and stop by a condition: `if k < 3 then t[k]` for k in 0..M.
bool is_cut(Program& p, TensorId t, size_t dimension, Id end) {
  Arena& a = *p.arena;
  std::vector<Id> known;  // of the dims
  for (const Precondition& c : p.preconditions) known.push_back(c.condition);
  const Id axis = a.axis("$0");  // '$' is no letter of the language
  const std::vector<AxisRange> walked = {{axis, a.integer(0), end}};
  return in_bounds(a, axis, p.tensors[t].shape[dimension], walked, known);
}

}  // namespace

Program narrow(const Program& p) {
  Program q = p;
  Reads reads{*p.arena, {}};
  for (Definition& d : q.definitions() | std::views::reverse) {  // users first: what they lose, others need not make
    if (!d.is_call() && std::ranges::find(q.outputs, d.target()) == q.outputs.end() &&
        std::ranges::find(q.gradients, d.target()) == q.gradients.end())
      if (auto found = reads.ends.find(d.target()); found != reads.ends.end())
        for (size_t k = 0; k < d.axes.size(); ++k)
          if (const Id end = found->second[k].value_or(kNone); end != kNone && is_cut(q, d.target(), k, end))
            d.axes[k].end = q.tensors[d.target()].shape[k] = end;
    reads.look(d);
  }
  return q;
}

}  // namespace xhat
