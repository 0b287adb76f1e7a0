#include "runtime/call/evaluated_calls.h"

#include <algorithm>

#include "ad/common/differentiation.h"
#include "expr/eval/evaluate.h"
#include "expr/text/import.h"
#include "runtime/call/check_values.h"
#include "runtime/device/host_copy.h"

namespace xhat::runtime {
namespace {

// Runs the evaluator on the definitions as the user wrote them, if these are what runs: throws Error for an index that is out of range, or
// an argmax over nothing.
void evaluate_written(const Ready& ready, const Arrays& inputs) {
  if (ready.side == &ready.plan->backward || !ready.plan->derivation.source.arena) return;
  Program written = without_dead(without_backward(own_copy(ready.plan->derivation.source)));
  if (!std::ranges::all_of(written.inputs, [&](TensorId t) { return inputs.contains(written.tensors[t].name); })) return;
  Arrays taken;
  for (TensorId t : written.inputs) taken[written.tensors[t].name] = inputs.at(written.tensors[t].name);
  evaluate(written, taken, ready.dims);
}

}  // namespace

Arrays arrays_of(const Program& p, const std::vector<TensorId>& tensors, const std::vector<TensorView>& views, const DeviceQueue& queue) {
  Arrays arrays;
  for (TensorId t : tensors) {
    std::vector<uint8_t> fetched;
    arrays[p.tensors[t].name] = array_of(on_host(views[t], fetched, queue));
  }
  return arrays;
}

void explain_failure(const Ready& ready, const std::vector<TensorView>& views, const DeviceQueue& queue) {
  const Program& p = ready.side->program;
  const Arrays inputs = arrays_of(p, p.inputs, views, queue);
  evaluate_written(ready, inputs);
  if (ready.plan->without_points) return;
  evaluate(p, inputs, ready.dims);
  throw Error(p.name + ": an index in the data is out of range, or an argmax runs over nothing");
}

void check_results(const Ready& ready, const Arrays& inputs, const Arrays& written, const std::vector<TensorView>& views,
                   const DeviceQueue& queue) {
  std::vector<TensorId> results;
  for (TensorId t : ready.side->program.outputs)
    if (views[t].data && std::ranges::find(ready.plan->stash, t) == ready.plan->stash.end()) results.push_back(t);
  if (queue.driver) queue.driver->synchronize(queue.stream);
  check_values(*ready.plan, ready.side->program, ready.dims, inputs, written, arrays_of(ready.side->program, results, views, queue));
}

}  // namespace xhat::runtime
