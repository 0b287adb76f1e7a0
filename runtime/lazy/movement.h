// Index maps of movement on memory: a view of memory is memory with other strides.
#pragma once
#include "runtime/lazy/node.h"

namespace xhat::lazy::detail {

// One dimension of a slice: result i is operand begin + i * step.
struct SliceStep {
  int64_t begin, step;
  bool from_end;  // begin was counted from the end
  bool to_end;    // takes all that follows
};
SliceStep slice_step(const Params& params, size_t d, int64_t extent);

// Moves the view by one step; false where strides cannot say it.
bool step_view(TensorView& v, Kind kind, const Shape& shape, const Params& params);

// Where the value of a node lies, if it is memory, or movement of memory that strides can say.
std::optional<TensorView> alias_of(const Node& n);

}  // namespace xhat::lazy::detail
