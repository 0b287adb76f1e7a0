// How much of an axis of the outer loop a tile has.
#pragma once
#include <cstdint>

namespace xhat::runtime {

// whole: all of it in every tile. part: a tile takes some of it (the last one maybe fewer). single: one element a tile.
enum class AxisKind : uint8_t { whole, part, single };

}  // namespace xhat::runtime
