// A definition as several over parts of its result, at the places where conditions change: `if 1 <= i && i < N-1 then x[i-1] + x[i+1] else y[i]`
// is a loop without a choice, whose reads are inside, and two edges.
#pragma once
#include <vector>

#include "runtime/kernel/kernel_spec.h"

namespace xhat::runtime {

struct Piece {
  SpecMember member;           // its left axes count from the beginning of the piece
  std::vector<int64_t> first;  // where that is, by left axis
};

// In place of the member. Makes axes in the spec.
std::vector<Piece> pieces_of(KernelSpec& spec, const SpecMember& m);

}  // namespace xhat::runtime
