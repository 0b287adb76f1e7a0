// Sizes that the machine has no memory for, refused before any of it is taken: where there is none left, Linux ends the process, or
// another one, without a word.
#pragma once
#include <vector>

#include "tools/options.h"

namespace xhat::tool {

// Bytes that tensors of these sizes take; each: bytes of an element, whatever its type (the evaluator's have 8), 0: of its type.
double bytes_of(const Program& p, const std::vector<TensorId>& tensors, const DimValues& dims, double each = 0);
double bytes_of_all(const Program& p, const DimValues& dims, double each = 0);

// Memory that can still be had: of the machine, and of the container that this runs in. 0: unknown.
double available_bytes();

// Throws Error if the op needs more than that, unless --ignore-memory was given.
void check_memory(const Command& c, const Program& op, const DimValues& dims, double bytes);

}  // namespace xhat::tool
