// What is asked once for many places is asked in front of the loop over them.
//
//   for each place: if (mask[place]) for each vector: if (xh_asked[block]) ...   =>   if (xh_asked[block]) for each place: if (mask[place]) ...
//
// Halide does so with conditions on inputs and numbers, but not on what it has made itself.
#pragma once
#include <string>

#include "Halide.h"

namespace xhat::runtime {

// A buffer whose name begins with this is complete before any loop reads it, and every place of it may be read there.
constexpr const char* kAskedBuffer = "asked";

void ask_first(Halide::Pipeline& pipeline);

}  // namespace xhat::runtime
