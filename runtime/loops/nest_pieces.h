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

// Of what is added to a tensor, term by term: those that are for one place along an axis (`if i == place then …`) by themselves, and the sum
// of the others. Choices with nothing on the other side are conditions of the member. Not of reductions: {m}.
std::vector<SpecMember> terms_of(KernelSpec& spec, const SpecMember& m);
// Does a condition of the member leave at most one place along the axis?
bool is_one_place(Arena& a, const SpecMember& m, Id axis);

}  // namespace xhat::runtime
