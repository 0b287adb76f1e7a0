// What one term of a definition costs, in additions, by the axis that vectors run along: the planner and the lowering ask the same.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

namespace xhat {

// Of the lanes of vectors along an axis of this extent, those that hold an element: 1.5 of an extent of 3, which takes two vectors of 2.
inline double lanes_filled(int64_t extent, int64_t natural) {
  if (extent >= natural) return static_cast<double>(natural);
  const auto width = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(extent, 1))));
  return static_cast<double>(extent) / static_cast<double>((extent + width - 1) / width);
}

// term: additions that a term costs as much as. strided: its reads that do not go along memory, each of which is one load per lane.
inline double vector_price(double term, double strided, double lanes) { return (term + strided) / lanes + strided; }

}  // namespace xhat
