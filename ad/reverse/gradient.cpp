#include "ad/reverse/gradient.h"

#include <algorithm>
#include <ranges>

#include "expr/index/expand_calls.h"
#include "ad/reverse/common_factors.h"
#include "ad/reverse/custom_gradient.h"
#include "ad/reverse/steps_gradient.h"
#include "ad/reverse/sweep.h"

namespace xhat {
namespace {

// A cotangent per float output; it is the first term of the output's adjoint.
void add_cotangents(Differentiation& d) {
  Program& p = d.program;
  for (const Definition& definition : p.forward.definitions) {
    if (definition.is_call()) continue;
    for (const AxisRange& r : definition.axes) d.adjoint(definition.target()).axes.push_back(r.axis);
  }
  for (TensorId t : p.outputs) {
    if (!is_float(p.tensor(t).type)) continue;
    TensorId cotangent = p.add_tensor("d" + p.tensor(t).name, p.tensor(t).type, p.tensor(t).shape);
    p.tensors[cotangent].role = Role::cotangent;
    p.cotangents.push_back(cotangent);
    std::vector<Id> axes = target_axes(d, t);
    d.adjoint(t).terms.push_back(d.arena().read(cotangent, p.tensor(t).type, axes));
    d.adjoint(t).guards.push_back(kNone);
  }
}

void sweep_back(Differentiation& d) {
  const Region forward = d.program.forward;
  for (const Definition& definition : forward.definitions | std::views::reverse) {
    bool wanted = std::ranges::any_of(
        definition.targets, [&](TensorId t) { return d.is_active(t) && !d.adjoint(t).terms.empty(); });
    if (!wanted) continue;
    if (definition.is_call()) {
      pull_back_custom(d, *definition.callee, definition.arguments, definition.targets);
    } else {
      Definition derived = definition;
      derived.body = with_common_factors(d.arena(), definition.body);
      sweep(d, derived);
    }
  }
}

void add_gradients(Differentiation& d, const std::vector<TensorId>& wrt) {
  for (TensorId t : wrt) {
    std::vector<Id> axes = target_axes(d, t);
    Id total = d.total(t);
    DType type = d.program.tensor(t).type;
    if (total == kNone) total = d.arena().constant(type, 0);
    d.program.gradients.push_back(
        d.define("grad_" + d.program.tensor(t).name, type, whole(d, t, axes), total));
    d.program.gradient_of.push_back(t);
  }
}

}  // namespace

Program gradient(const Program& source, const GradientOptions& options) {
  if (source.steps) return gradient_of_steps(source, options);
  Differentiation d;
  d.program = ordered(expand_calls(as_forward(source), true));
  std::vector<TensorId> wrt = asked_for(d.program, options.wrt);
  mark_active(d, wrt);
  add_cotangents(d);
  if (d.program.custom_gradient)
    pull_back_custom(d, d.program, d.program.inputs, d.program.outputs);
  else
    sweep_back(d);
  add_gradients(d, wrt);

  Program result = expand_calls(d.program);  // the calls that were kept for their gradients
  result.custom_gradient = nullptr;
  result.backward.definitions = std::move(d.derived);
  for (Definition& made : result.backward.definitions) made.derived = true;
  result = with_clear_axes(without_dead(ordered(result)));
  verify(result);
  return result;
}

}  // namespace xhat
