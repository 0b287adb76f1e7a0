// Which values of a program with loops and branches depend on the inputs asked for.
#pragma once
#include <string>
#include <vector>

#include "expr/core/steps.h"

namespace xhat {

// Per tensor. What only depends on them by an index or a condition does not.
std::vector<char> active_values(const Program& p, const std::vector<TensorId>& wrt);
// The inputs of the block's op whose operands are active, by name.
std::vector<std::string> active_inputs(const Block& block, const std::vector<char>& active);

}  // namespace xhat
