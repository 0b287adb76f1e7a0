// A graph that is too large for one program is cut into pieces of the order in which it is listed.
#pragma once
#include "runtime/lazy/graph.h"

namespace xhat::lazy::detail {

// By piece, in order: its values that later pieces read. limit: about so many computed values make a piece.
std::vector<std::vector<NodePtr>> read_by_later_pieces(const Graph& g, size_t limit);

}  // namespace xhat::lazy::detail
