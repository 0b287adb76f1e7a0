// The text of a program with loops and branches, for people: what `print` gives for it. It is not read back; the program's own text is.
#pragma once
#include <string>

#include "expr/core/steps.h"

namespace xhat {

// Its steps, one per line, then the ops that its blocks call.
std::string print_steps(const Program& p);

}  // namespace xhat
