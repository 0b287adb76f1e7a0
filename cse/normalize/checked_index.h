// Indices that depend on data: which of them are proved to stay inside their tensors, and which are checked when a kernel runs.
#pragma once
#include <span>
#include <unordered_map>
#include <vector>

#include "expr/core/program.h"
#include "expr/core/uses.h"

namespace xhat {

bool depends_on_data(const Arena& a, Id index);

// Under which condition each node of a body is evaluated: any of the ways that lead to it.
std::unordered_map<Id, Id> conditions_on_paths(Arena& a, Id root);

// Is 0 <= index < extent wherever `when` holds, for all values of the axes in scope (outer first)? Proved by the types of data, by what %, min
// and clamp do to them, and by conditions around the read: in a gradient, under nbr[n,k] == v, the index is v. An argmax is one of its
// axis's values.
bool proved_inside(Arena& a, const Uses& uses, Id index, Id extent, std::vector<AxisRange> axes, Id when);

// Does evaluating a map always read, at its axis number i alone, a tensor of that axis's extent? Then a check of the index at which the map
// is read survives when the map is substituted there: the tensor is read at that index.
bool reads_whole_axis(Arena& a, std::span<const Tensor> tensors, const Definition& map, size_t i);

}  // namespace xhat
