// An index that stops at the ends of an axis, or turns there, has another affine form on each of its pieces:
//   clamp(i - 1, 0, N - 1)   is 0 where i - 1 < 0, N - 1 where N - 1 < i - 1, and i - 1 between
//   abs(i - 1)               is 1 - i where i - 1 < 0, else i - 1
#pragma once
#include <span>
#include <vector>

#include "ad/common/guards.h"

namespace xhat {

struct IndexPiece {
  Literals where;  // about positions alone; of two pieces at most one holds
  Id value;
};

// The innermost part of an index that has pieces, depends on one of the axes, and reads no data; kNone: there is none.
Id part_with_pieces(const Arena& a, Id index, std::span<const Id> axes);
// Its pieces. Of what holds at all points of these axes (ranges may use axes around), and of the dims, the conditions do without.
std::vector<IndexPiece> pieces_of(Arena& a, Id part, std::span<const AxisRange> axes, std::span<const Id> known);

}  // namespace xhat
