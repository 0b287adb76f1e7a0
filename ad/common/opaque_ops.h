// Ops that nothing is fused with: calls of an op, and single definitions, that a policy keeps as one node.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "expr/core/program.h"

namespace xhat {

// names: of ops that `op` calls, also through others, or of tensors that it defines. By tensor of the expanded program: the node that it
// belongs to. "h = softmax(x)" is node "softmax h"; a call inside of such a node is part of it. Throws Error for a name that is neither.
std::map<std::string, std::string> opaque_nodes(const Program& op, const std::vector<std::string>& names);

}  // namespace xhat
