// Along which axis the vectors of plain loops run, and what the loops take.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/kernel/kernel_spec.h"

namespace xhat::runtime {

// The axis that vectors run along; kNone: none is long enough.
Id vector_axis(const KernelSpec& spec, const SpecMember& m);
// Does the reduction say where an extreme is?
bool is_place(Op op);
// The reads that stand in these.
std::vector<Id> reads_in(const Arena& a, std::span<const Id> roots);
// All that a definition reads: in its body, its condition, and the indices at which it adds.
std::vector<Id> reads_of(const Arena& a, const SpecMember& m);

}  // namespace xhat::runtime
