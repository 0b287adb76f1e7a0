// How many elements of a grid axis one tile has.
#pragma once
#include <cstdint>

namespace xhat::runtime {

// untiled: all of them. tiled: some; the last tile may have fewer. point: one.
enum class AxisKind : uint8_t { untiled, tiled, point };

}  // namespace xhat::runtime
