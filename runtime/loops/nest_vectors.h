// Along which axis the vectors of plain loops run, what they read, and what the loops take.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "Halide.h"
#include "runtime/kernel/kernel_spec.h"

namespace xhat::runtime {

// The axis that vectors run along; kNone: none is long enough.
Id vector_axis(const KernelSpec& spec, const SpecMember& m);
// How many elements a vector along an axis has: as many as a vector of the machine, or of a shorter one that fits into a short axis.
int lanes_along(const KernelSpec& spec, const Halide::Target& target, const SpecMember& m, Id axis);
// Does the reduction say where an extreme is?
bool is_place(Op op);
// The reads that stand in these.
std::vector<Id> reads_in(const Arena& a, std::span<const Id> roots);
// All that a definition reads: in its body, its condition, and the indices at which it adds.
std::vector<Id> reads_of(const Arena& a, const SpecMember& m);
// Does one of the definitions read the tensor, by its number there?
bool reads(const KernelSpec& spec, uint32_t tensor);
// Do these conditions, as bounds of a loop over the axis, keep the reads that depend on it inside of what they read?
bool keep_inside(const KernelSpec& spec, std::span<const Id> guards, Id axis, std::span<const Id> reads);

}  // namespace xhat::runtime
