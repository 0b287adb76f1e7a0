// A definition as several over parts of its result, at the places where conditions change: `if 1 <= i && i < N-1 then x[i-1] + x[i+1] else y[i]`
// is a loop without a choice, whose reads are inside, and two edges.
#pragma once
#include <functional>
#include <vector>

#include "runtime/kernel/kernel_spec.h"

namespace xhat::runtime {

struct Piece {
  SpecMember member;           // its left axes count from the beginning of the piece
  std::vector<int64_t> first;  // where that is, by left axis
};

// In place of the member. Makes axes in the spec. added: the member is added to its tensor, and terms that are for one place along an axis
// (`if i == place then …`) are pieces by themselves; choices with nothing on the other side are conditions.
std::vector<Piece> pieces_of(KernelSpec& spec, const SpecMember& m, bool added);

// Does the read take, of a tensor of the same shape, the element that the piece makes?
bool is_own_element(const KernelSpec& spec, const SpecMember& piece, const std::vector<int64_t>& first, const Node& read);

// Sums whose terms go where an index says (s[n] = sum(k if i-1-k == n: w[k])), which one definition alone reads, multiplies and adds to its
// tensor (g[n] += c*s[n]): terms are multiplied and added there, one by one, and no n is walked. added: as above, by tensor.
void add_where_terms_go(KernelSpec& spec, const std::function<bool(uint32_t)>& added);

// Does a condition of the member leave at most one place along the axis?
bool is_one_place(Arena& a, const SpecMember& m, Id axis);
// All of them; true, if there are none.
Id condition_of(Arena& a, const std::vector<Id>& conjuncts);

}  // namespace xhat::runtime
