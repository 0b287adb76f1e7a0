// How much of a grid axis one tile has.
#pragma once
#include <cstdint>

namespace xhat::runtime {

// untiled: every tile has all of it. tiled: some elements, the last tile maybe fewer. point: one element.
enum class AxisKind : uint8_t { untiled, tiled, point };

}  // namespace xhat::runtime
