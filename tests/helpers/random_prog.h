// Random imperative programs: views, writes through them, loops, branches; all valid at N = 4, M = 3.
#pragma once
#include <cstdint>
#include <string>

namespace xhat::testing {

std::string random_prog(uint64_t seed);

}  // namespace xhat::testing
