// Where a forward found its inputs and outputs, for a backward that is not given them again.
#pragma once
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "expr/core/program.h"
#include "runtime/host/tensor_view.h"

namespace xhat::runtime {

class CallersMemory {
 public:
  void forget() { tensors_.clear(); }
  // The views of the program's inputs and outputs, by tensor. Scalars on the host are copied: one that was a temporary is gone before the
  // backward. No allocation once warm.
  void remember(const Program& p, std::span<const TensorView> views);
  // What a backward of the program is not given: the view of an input or output that the forward had; or the number 1, for the cotangent of an
  // op's only float output if that is a scalar, a loss. False: it must be given.
  bool supply(const Program& p, TensorId t, TensorView& view) const;

 private:
  std::vector<TensorId> tensors_;
  std::vector<TensorView> views_;
  std::vector<std::array<std::byte, sizeof(double)>> scalars_;
};

}  // namespace xhat::runtime
