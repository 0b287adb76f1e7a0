// Random imperative programs whose loops stay, of what carried values are used for beside arithmetic: integers that say where to read, to
// add and to write, histograms of them, places of extremes, earlier rows, triangles of loops, `while`, sides, values of several types.
#pragma once
#include <cstdint>
#include <string>

#include "expr/index/dims.h"

namespace xhat::testing {

// A program of the dims N, M, T, valid at random_loops_dims(seed) if the front end takes it.
std::string random_loops(uint64_t seed);
DimValues random_loops_dims(uint64_t seed);

}  // namespace xhat::testing
