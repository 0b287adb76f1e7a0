// Who still needs what memory holds, before it is written over.
#pragma once
#include <vector>

#include "runtime/lazy/node.h"

namespace xhat::lazy::detail {

// written: leaves whose memory is about to be written. Those that a living array needs that is not computed now, or is a root that waits
// for a later program, get memory of their own with the old value. Returns which did. Under engine_mutex().
std::vector<char> keep_needed(const std::vector<Node*>& written, const std::vector<Node*>& computed,
                              const std::vector<std::vector<NodePtr>>& waiting);

}  // namespace xhat::lazy::detail
