#include "expr/core/uses.h"

namespace xhat {

std::vector<TensorId> tensors_read(const Arena& a, const Definition& d) { return d.is_call() ? d.arguments : tensors_read(a, d.body); }

Uses::Uses(const Program& p) : definition_(p.tensors.size()), is_result_(p.tensors.size()), readers_(p.tensors.size()) {
  for (const auto* list : {&p.outputs, &p.gradients})
    for (TensorId t : *list) is_result_[t] = true;
  for (const Definition& d : p.definitions()) {
    for (TensorId t : d.targets) definition_[t] = &d;
    for (TensorId t : tensors_read(*p.arena, d))
      if (readers_[t].empty() || readers_[t].back() != &d) readers_[t].push_back(&d);  // a call may have an argument twice
  }
}

}  // namespace xhat
