#include "expr/core/distinct_axes.h"

#include <algorithm>
#include <unordered_map>

namespace xhat {
namespace {

// root with one node in place of another. Unlike substitute, which protects the replacement's free axes from
// capture, it is to stand in the scope of what it replaces.
Id with_node_replaced(Arena& a, Id root, Id from, Id to) {
  std::unordered_map<Id, Id> done{{from, to}};
  std::vector<Id> args;
  for (Id id : reachable(a, root)) {
    if (id == from) continue;
    args.clear();
    for (Id x : a[id].args()) args.push_back(done.at(x));
    done[id] = a.with_args(id, args);
  }
  return done.at(root);
}

// The reduction over fresh axes, those of reductions inside it included.
Id renamed(Arena& a, Id reduction, std::vector<Id>& names) {
  Id fresh = substitute(a, reduction, {}, names);
  for (Id x : all_axes(a, std::span<const Id>(&fresh, 1)))
    if (std::ranges::find(names, x) == names.end()) names.push_back(x);
  return fresh;
}

// A reduction that has to be renamed; kNone: none has. Fills the ranges on the way.
Id first_clash(const Arena& a, Id body, std::vector<AxisRange>& ranges) {
  std::vector<Id> ids = reachable(a, body);
  for (size_t i = ids.size(); i-- > 0;) {
    const Node& n = a[ids[i]];
    if (!is_reduction(n.op)) continue;
    for (const AxisRange& r : reduce_axes(n)) {
      auto known = std::ranges::find(ranges, r.axis, &AxisRange::axis);
      if (known == ranges.end())
        ranges.push_back(r);
      else if (!(*known == r))
        return ids[i];
    }
  }
  return kNone;
}

}  // namespace

DistinctAxes with_distinct_axes(Arena& a, std::span<const AxisRange> around, Id body) {
  DistinctAxes result{body, {}, all_axes(a, std::span<const Id>(&body, 1))};
  for (const AxisRange& r : around)
    if (std::ranges::find(result.names, r.axis) == result.names.end()) result.names.push_back(r.axis);
  while (true) {
    result.ranges.assign(around.begin(), around.end());
    Id clash = first_clash(a, result.body, result.ranges);
    if (clash == kNone) return result;
    result.body = with_node_replaced(a, result.body, clash, renamed(a, clash, result.names));
  }
}

}  // namespace xhat
