// Memory of values: taken from a pool, since a training loop asks for the same sizes in each step, and copied by plain loops.
#pragma once
#include "expr/core/array.h"
#include "runtime/lazy/node.h"

namespace xhat::lazy::detail {

// Row-major, aligned to 64 bytes, uninitialized; goes back to the pool with its last owner.
std::shared_ptr<Storage> new_storage(DType type, const Shape& shape);
int64_t storage_bytes();  // of all storages that live

// Element by element, in row-major order of both; types are converted as casts do. The shapes must have as many elements.
void copy_elements(const TensorView& to, const TensorView& from);
// A view of one element without its dimensions.
TensorView scalar_view(const TensorView& one);
void write_array(const TensorView& to, const xhat::Array& values);
// The value of a constant or an iota at every position.
void fill(const TensorView& to, const Node& n);

}  // namespace xhat::lazy::detail
