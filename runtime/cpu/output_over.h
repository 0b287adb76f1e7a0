// Outputs that a call gives the memory of an input: when they may have it. How their code is made: runtime/cpu/ir/write_over.h.
#pragma once
#include <string>
#include <vector>

#include "fusion/plan/plan.h"
#include "runtime/host/tensor_view.h"
#include "runtime/kernel/kernel_spec.h"

namespace xhat::runtime {

struct OutputOver {
  TensorId output = 0, input = 0;
};

// Does a kernel in the sweep of one that writes over an input, or after it, read that?
bool reads_beside(const Program& p, const KernelPlan& plan, const std::vector<OutputOver>& over);

// Is the output the input's memory, all of it and without gaps? Kernels on the CPU may allow for that.
bool lies_on(const TensorView& output, const TensorView& input);

// f(OutputOver) for each of the direction's outputs that lies on one of its inputs. views: by tensor.
template <class F>
void for_each_over(const Program& direction, const std::vector<TensorView>& views, const F& f) {
  for (TensorId out : direction.outputs)
    for (TensorId in : direction.inputs)
      if (lies_on(views[out], views[in])) f(OutputOver{out, in});
}

// Throws Error, which says why it cannot be.
[[noreturn]] void refuse_over(const Program& p, OutputOver o, const std::string& why);

// Kernel i of the plan makes the output. It is not to write past the cache, where the lines are anyhow. Throws Error if a later kernel
// reads the input.
void write_over(const Program& p, KernelPlan& plan, size_t i, OutputOver o);
// The same kernel. Throws Error if it reads the input elsewhere than in the place of what it writes.
void write_over(const Program& p, KernelSpec& spec, OutputOver o);

}  // namespace xhat::runtime
