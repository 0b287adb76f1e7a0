// Along which axis the vectors of plain loops run, and what the loops take.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "runtime/kernel/kernel_spec.h"

namespace xhat::runtime {

// The axis that vectors run along; kNone: none is long enough.
Id vector_axis(const KernelSpec& spec, const SpecMember& m);
// The reads that stand in these.
std::vector<Id> reads_in(const Arena& a, std::initializer_list<Id> roots);

}  // namespace xhat::runtime
