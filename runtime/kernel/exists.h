// Is there a point at which a test holds? The question of every check that runs before a kernel.
#pragma once
#include <span>
#include <vector>

#include "expr/core/expr.h"

namespace xhat::runtime {

// The test as alternatives, each a list of parts that all hold. Only what helps to determine an axis is multiplied out.
std::vector<std::vector<Id>> alternatives(Arena& a, Id test, std::span<const AxisRange> axes);

// Do all parts hold at some point of the axes (in order of nesting)? A bool in which none of these axes is free. Each part is looked at
// over the axes that it depends on, and not over the box of all axes:
//   exists v,n,k: nbr[n,k] == v && out(nbr[n,k])      any(n,k: 0 <= nbr[n,k] && nbr[n,k] < V && out(nbr[n,k]))
//   exists b,t,d: mask[t] && out(ids[b])              0 < D && any(t: mask[t]) && any(b: out(ids[b]))
//   exists v,n,k: near[v,n] && out(nbr[n,k])          any(n: any(v: near[v,n]) && any(k: out(nbr[n,k])))
Id exists(Arena& a, std::vector<AxisRange> axes, std::vector<Id> parts);

}  // namespace xhat::runtime
