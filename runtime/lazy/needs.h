// Who still needs what memory holds, before it is written over.
#pragma once
#include <vector>

#include "runtime/lazy/node.h"

namespace xhat::lazy::detail {

// written: leaves whose memory is about to be written. Which of them does a living array need that is not computed now, or a root that
// waits for a later program? Under engine_mutex().
std::vector<char> find_needed(const std::vector<Node*>& written, const std::vector<Node*>& computed,
                              const std::vector<std::vector<NodePtr>>& waiting);
// The leaf gets memory of its own, with what it holds now.
void keep(Node& leaf);

}  // namespace xhat::lazy::detail
