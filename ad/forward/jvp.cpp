#include "ad/forward/jvp.h"

#include <algorithm>
#include <map>

#include "ad/forward/steps_jvp.h"
#include "ad/forward/tangent.h"
#include "ad/gather/gather.h"
#include "ad/reverse/custom_gradient.h"

namespace xhat {
namespace {

class Forward {
 public:
  // named: what the tangents of these outputs are called.
  Forward(const Program& op, const std::vector<std::string>& wrt, std::map<TensorId, std::string> named) : named_(std::move(named)) {
    d_.program = ordered(expand_calls(op, true));
    wrt_ = asked_for(d_.program, wrt);
    mark_active(d_, wrt_);
    tangents_.resize(d_.program.tensors.size());
  }

  // The program with the tangents' definitions, and the tangents of `named`, in the order of the outputs.
  std::pair<Program, std::vector<TensorId>> run() {
    const Program op = d_.program;  // without the tangents among its inputs
    add_inputs();
    if (op.custom_gradient)
      custom(op, op.inputs, op.outputs);
    else
      for (const Definition& definition : std::vector(d_.program.forward.definitions)) push(definition);
    std::vector<TensorId> results;
    for (TensorId t : d_.program.outputs)
      if (named_.contains(t)) results.push_back(tangent_or_zero(t));

    Program result = expand_calls(d_.program);  // the calls that were kept for their gradients
    result.custom_gradient = nullptr;
    for (Definition& made : d_.derived) {
      made.derived = true;
      result.forward.definitions.push_back(std::move(made));
    }
    return {std::move(result), std::move(results)};
  }

 private:
  std::string name_of(TensorId t) const {
    auto at = named_.find(t);
    return at == named_.end() ? "t_" + d_.program.tensor(t).name : at->second;
  }

  TensorId add_tangent(TensorId t) {
    DType type = d_.program.tensor(t).type;
    std::vector<Id> shape = d_.program.tensor(t).shape;
    return d_.program.add_tensor(name_of(t), type, shape);
  }

  void add_inputs() {
    for (TensorId t : wrt_) {
      TensorId tangent = tangents_[t].tensor = add_tangent(t);
      d_.program.tensors[tangent].role = Role::input;
      d_.program.inputs.push_back(tangent);
    }
  }

  void push(const Definition& definition) {
    bool active = std::ranges::any_of(definition.targets, [&](TensorId t) { return d_.is_active(t); });
    if (!active) return;
    if (definition.is_call())
      custom(*definition.callee, definition.arguments, definition.targets);
    else
      tangents_[definition.target()] = push_forward(d_, tangents_, definition, name_of(definition.target()));
  }

  void custom(const Program& op, std::vector<TensorId> arguments, const std::vector<TensorId>& targets) {
    arguments.resize(op.inputs.size());
    std::vector<TensorId> from, to;
    for (TensorId t : arguments) from.push_back(tangents_[t].tensor);
    for (TensorId t : targets) {
      bool has = is_float(d_.program.tensor(t).type);
      to.push_back(has ? add_tangent(t) : kNoTensor);
      if (has) tangents_[t].tensor = to.back();
    }
    push_forward_custom(d_, op, arguments, targets, from, to);
  }

  TensorId tangent_or_zero(TensorId t) {
    if (tangents_[t].tensor != kNoTensor) return tangents_[t].tensor;
    TensorId tangent = add_tangent(t);
    std::vector<Id> axes = target_axes(d_, t);
    d_.define(tangent, whole(d_, t, axes), d_.arena().constant(d_.program.tensor(t).type, 0));
    return tangent;
  }

  Differentiation d_;
  std::vector<TensorId> wrt_;
  std::map<TensorId, std::string> named_;
  Tangents tangents_;
};

}  // namespace

Program vjp(const Program& op, const GradientOptions& options) {
  if (op.steps)
    throw Error(
        op.name +
        ": the gradient of a program with loops or branches is no op of its own yet; compile the program, and call forward and backward");
  return finished_op(as_forward(gather(gradient(op, options))), op.name + "_vjp");
}

Program jvp(const Program& source, const JvpOptions& options) {
  if (source.steps) return jvp_of_steps(source, options);
  Program op = as_forward(source);
  std::map<TensorId, std::string> named;
  for (TensorId t : op.outputs)
    if (is_float(op.tensor(t).type)) named[t] = "jvp_" + op.tensor(t).name;
  auto [p, results] = Forward(op, options.wrt, named).run();
  p.outputs.insert(p.outputs.end(), results.begin(), results.end());
  return finished_op(std::move(p), op.name + "_jvp");
}

Program hvp(const Program& source, const HvpOptions& options) {
  if (source.steps)
    throw Error(source.name +
                ": hvp of a program with loops or branches is no op of its own yet; the gradient of its jvp, with the cotangents of the "
                "outputs for those of the tangents, is that product");
  Program op = as_forward(source);
  std::vector<std::string> along = names_of(op, asked_for(op, options.along));
  Program g = gather(gradient(op, {options.wrt}));
  std::map<TensorId, std::string> named;
  for (size_t i = 0; i < g.gradients.size(); ++i) named[g.gradients[i]] = "hvp_" + g.tensor(g.gradient_of[i]).name;
  auto [p, results] = Forward(as_forward(g), along, named).run();
  p.outputs = results;
  return finished_op(std::move(p), op.name + "_hvp");
}

}  // namespace xhat
