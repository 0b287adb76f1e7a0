// Who still needs what memory holds, before it is written over.
#pragma once
#include <vector>

#include "runtime/lazy/node.h"

namespace xhat::lazy::detail {

// written: leaves whose memory is about to be written. Which of them does a living array need that is not computed now, or a root that
// waits for a later program? Under engine_mutex().
std::vector<char> find_needed(const std::vector<Node*>& written, const std::vector<Node*>& computed,
                              const std::vector<std::vector<NodePtr>>& waiting);
// Marks which nodes below the loss depend on what it is derived by: Node::need, where need_mark is the number returned. Realized values are
// looked through to what they were computed from, constants are not. Throws Error where that was let go.
uint64_t mark_dependents(Node* loss, std::span<Node* const> by, std::span<Node* const> constants);
// The leaf gets memory of its own, with what it holds now.
void keep(Node& leaf);

}  // namespace xhat::lazy::detail
