// The second step of a reduction across tiles, and the addition of gradients to the caller's tensors.
#pragma once
#include "expr/core/expr.h"
#include "runtime/host/tensor_view.h"
#include "runtime/host/thread_pool.h"

namespace xhat::runtime {

// out = op over the first dimension of partial, whose shape is [rows, elements of out], in index order. Floats are summed in double. out may
// have gaps. Computes elements [first, last) of out, so that threads can share the work.
void combine_partials(Op op, const void* partial, int64_t rows, const TensorView& out, int64_t first, int64_t last);
inline void combine_partials(Op op, const void* partial, int64_t rows, const TensorView& out) {
  combine_partials(op, partial, rows, out, 0, out.elements());
}

// target += value, element by element.
void add_into(const TensorView& target, const TensorView& value);
// In slices by all threads where it is large.
void add_into(const TensorView& target, const TensorView& value, ThreadPool& pool);

}  // namespace xhat::runtime
