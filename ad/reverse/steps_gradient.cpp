#include "ad/reverse/steps_gradient.h"

#include <map>

#include "ad/common/differentiation.h"
#include "ad/common/steps_activity.h"
#include "expr/core/steps.h"
#include "expr/index/dims.h"

namespace xhat {

Program gradient_of_steps(const Program& p, const GradientOptions& options) {
  if (!p.gradients.empty()) throw op_error(p, "second derivatives of a program with loops or branches are not there yet; differentiate it once");
  Program result = p;
  const std::vector<TensorId> wrt = asked_for(p, options.wrt);
  const std::vector<char> active = active_values(p, wrt);
  std::map<std::pair<const Program*, std::vector<std::string>>, std::shared_ptr<const Program>> known;
  result.steps = std::make_shared<const Steps>(map_blocks(*p.steps, [&](const Block& block) {
    Block b = block;
    const std::vector<std::string> names = active_inputs(block, active);
    if (names.empty()) return b;
    auto& op = known[{block.op.get(), names}];
    if (!op) op = std::make_shared<const Program>(gradient(*block.op, {names}));
    b.with_gradient = op;
    return b;
  }));
  auto parallel = [&](const std::string& name, TensorId to, Role role) {
    const Tensor like = result.tensors[to];
    const TensorId t = result.add_tensor(name, like.type, like.shape);
    result.tensors[t].role = role;
    return t;
  };
  for (TensorId t : p.outputs)
    if (is_float(p.tensors[t].type)) result.cotangents.push_back(parallel("d" + p.tensors[t].name, t, Role::cotangent));
  for (TensorId t : wrt) {
    result.gradients.push_back(parallel("grad_" + p.tensors[t].name, t, Role::defined));
    result.gradient_of.push_back(t);
  }
  return result;
}

}  // namespace xhat
