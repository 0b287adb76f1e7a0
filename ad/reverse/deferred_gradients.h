// Gradients of inputs that stay the same over many runs of an op, as one sum over all of these runs.
//
//   each run        d_z[b,j] = …                  grad_w[j,k] = sum(b: d_z[b,j] * h[b,k])       added to all of grad_w
//   =>  each run    d_z[b,j] = …                                                                handed on, with h
//       later       grad_w[j,k] = sum(run,b: d_z[run,b,j] * h[run,b,k])
//
// A run writes d_z, which is smaller than grad_w, and the product goes over the rows of many runs.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "expr/index/dims.h"

namespace xhat {

struct DeferredGradients {
  Program op;                    // without these gradients; its backward hands on what they need as gradients of no input (kNoTensor)
  Program sums;                  // parts of some runs, which are rows of its inputs -> these gradients, summed over the runs
  std::vector<TensorId> parts;   // of `op`: inputs, and what its backward hands on; the first inputs of `sums`, in this order
  std::vector<TensorId> shared;  // inputs of `op` that stay the same, which `sums` reads, too: its other inputs
  std::vector<TensorId> of;      // inputs of `op` whose gradients the outputs of `sums` are
  std::string runs;              // the dim of `sums` that is the number of runs
  int64_t part_bytes = 0, gradient_bytes = 0;  // of a run, of the gradients
};

// derived: an op and its gradients. unchanging: inputs that are the same in all of these runs. None: no gradient is larger than what it is made of.
std::optional<DeferredGradients> defer_gradients(const Program& derived, const std::vector<std::string>& unchanging,
                                                 const DimValues& sizes);

}  // namespace xhat
