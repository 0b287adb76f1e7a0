// Which plain loops can be one: definitions over as many points, none of which reads elsewhere what the other writes. What they compute from the
// same operands is then computed once for a point, and what one reads of the other is still in a register. Likewise reductions over as many terms.
#pragma once
#include <span>
#include <vector>

#include "runtime/loops/nest.h"
#include "runtime/loops/nest_pieces.h"

namespace xhat::runtime {

// A definition ready to be written: the loops around a point are over those of its left axes that have more than one place, outermost first.
struct NestLoop {
  Id axis;
  std::vector<Id> guards;  // conditions that bound it
  bool operator==(const NestLoop&) const = default;
};
struct ReadyPiece {
  Piece piece;  // what is left of the condition
  std::vector<NestLoop> outer, inner;
  Id vectors = kNone;
  bool along_left = false;  // vectors run along the last of the outer loops
  int lanes = 1;            // of these vectors
  int width = 1;            // of vectors along a reduced axis
  int parts = 1;            // so many of these vectors are added up apart: none waits for the one before
};

// In groups, in the order in which they run. All of a group are over the axes of its first.
std::vector<std::vector<ReadyPiece>> together(const KernelSpec& spec, std::vector<ReadyPiece> pieces, std::span<const NestPlace> places);

}  // namespace xhat::runtime
