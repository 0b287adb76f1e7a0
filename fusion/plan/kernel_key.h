// What a kernel computes, as a key for choices that were found by measuring it: 16 hexadecimal digits of its members' text
// with sizes filled in. Names are not part of it, nor are tiles: the same kernel of another op has the same key, another size
// another one.
#pragma once
#include <string>

#include "fusion/plan/plan.h"

namespace xhat {

std::string kernel_key(const Program& p, const Kernel& k, const DimValues& sizes);

}  // namespace xhat
