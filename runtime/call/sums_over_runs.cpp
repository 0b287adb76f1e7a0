#include "runtime/call/sums_over_runs.h"

namespace xhat::runtime {

SumsOverRuns::SumsOverRuns(const BlockOp& block)
    : op(compile(block.deferred->sums, block.sums_options)),
      dims(block.sums_options.dims),
      runs(block.deferred->runs),
      runs_at_once(block.runs_at_once) {
  const DeferredGradients& deferred = *block.deferred;
  const Program& from = deferred.op;
  auto operand_of = [&](TensorId t) -> std::optional<size_t> {
    const auto it = std::ranges::find(from.inputs, t);
    if (it == from.inputs.end()) return {};
    return static_cast<size_t>(it - from.inputs.begin());
  };
  auto name = [&](TensorId t) { return deferred.sums.tensors[t].name; };
  for (size_t i = 0; i < deferred.parts.size(); ++i) {
    const TensorId t = deferred.parts[i];
    parts.push_back({name(deferred.sums.inputs[i]), operand_of(t), from.tensors[t].name});
    if (parts.back().operand) operands.push_back(*parts.back().operand);
  }
  for (size_t i = 0; i < deferred.shared.size(); ++i) {
    shared.emplace_back(name(deferred.sums.inputs[parts.size() + i]), *operand_of(deferred.shared[i]));
    operands.push_back(shared.back().second);
  }
  for (size_t i = 0; i < deferred.of.size(); ++i) gradients.emplace_back(name(deferred.sums.outputs[i]), *operand_of(deferred.of[i]));
}

}  // namespace xhat::runtime
