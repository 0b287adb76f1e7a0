// The symbolic extents of every item of a graph.
#pragma once
#include <vector>

#include "runtime/lazy/extents.h"
#include "runtime/lazy/graph.h"

namespace xhat::lazy::detail {

using Terms = std::vector<Extents::Term>;

// Groups of dimensions of a reshape: those of the operand and of the result that hold the same elements.
struct ReshapeGroup {
  std::vector<size_t> from, to;  // extents of 1 are in no group
};
std::vector<ReshapeGroup> reshape_groups(const Shape& from, const Shape& to);

// Per item. leaves: of Walk::leaves. above: where this graph is of a derivative, the terms of what it is by.
std::vector<Terms> infer_extents(Extents& e, const Graph& g, const std::vector<Terms>& leaves, const std::vector<Terms>& above = {});

}  // namespace xhat::lazy::detail
