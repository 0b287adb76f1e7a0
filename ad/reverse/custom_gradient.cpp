#include "ad/reverse/custom_gradient.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "ad/gather/gather.h"
#include "ad/reverse/gradient.h"

namespace xhat {
namespace {

// The rule of an op at one use of it. That of `grad`: its parameters are the op's inputs and outputs by name, its other
// parameters the cotangents in order; its outputs are d<input> by name, or else the float inputs in order. That of a backward block: both
// directions, of which gradients are wanted.
struct StatedRule {
  Program program;                   // without calls
  std::vector<TensorId> tensors;     // its tensors -> ours: the op's inputs and outputs; kNoTensor: others
  std::vector<TensorId> cotangents;  // its parameters
  std::vector<size_t> target_of;     // of each cotangent: which output of the op
  std::vector<size_t> argument_of;   // of each result: which input of the op
};

StatedRule rule_of(const Program& op, const std::vector<TensorId>& arguments, const std::vector<TensorId>& targets) {
  StatedRule r;
  for (size_t i = 0; i < op.outputs.size(); ++i)
    if (is_float(op.tensor(op.outputs[i]).type)) r.target_of.push_back(i);
  if (!op.custom_gradient) {
    const Program both = expand_calls(op);
    r.cotangents = both.cotangents;
    for (TensorId t : both.gradient_of)
      r.argument_of.push_back(static_cast<size_t>(std::ranges::find(both.inputs, t) - both.inputs.begin()));
    const std::vector<TensorId> inputs = both.inputs, gradients = both.gradients;
    r.program = as_forward(both);
    r.program.outputs = gradients;
    r.program = without_dead(r.program);
    r.tensors.assign(r.program.tensors.size(), kNoTensor);
    for (size_t i = 0; i < inputs.size(); ++i) r.tensors[inputs[i]] = arguments[i];
    return r;
  }
  r.program = expand_calls(*op.custom_gradient);
  r.tensors.assign(r.program.tensors.size(), kNoTensor);
  for (TensorId t : r.program.inputs) {
    const std::string& name = r.program.tensor(t).name;
    for (size_t i = 0; i < op.inputs.size(); ++i)
      if (op.tensor(op.inputs[i]).name == name) r.tensors[t] = arguments[i];
    for (size_t i = 0; i < op.outputs.size(); ++i)
      if (op.tensor(op.outputs[i]).name == name) r.tensors[t] = targets[i];
    if (r.tensors[t] == kNoTensor) r.cotangents.push_back(t);
  }
  if (r.cotangents.size() != r.target_of.size())
    throw Bug("grad " + op.name + " has " + std::to_string(r.cotangents.size()) + " cotangents for " + std::to_string(r.target_of.size()) +
              " float outputs");

  std::vector<size_t> in_order;
  for (size_t i = 0; i < op.inputs.size(); ++i)
    if (is_float(op.tensor(op.inputs[i]).type) && !op.tensor(op.inputs[i]).constant) in_order.push_back(i);
  for (size_t k = 0; k < r.program.outputs.size(); ++k) {
    const std::string& name = r.program.tensor(r.program.outputs[k]).name;
    auto named = std::ranges::find_if(op.inputs, [&](TensorId t) { return "d" + op.tensor(t).name == name; });
    if (named == op.inputs.end() && k >= in_order.size()) throw Bug("grad " + op.name + ": " + name + " is of no input");
    r.argument_of.push_back(named == op.inputs.end() ? in_order[k] : static_cast<size_t>(named - op.inputs.begin()));
  }
  return r;
}

// A derivative by an argument that moves is asked for, and the backward block has none.
void all_stated(const Program& op, const StatedRule& r, const std::function<bool(size_t argument)>& moves) {
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const Tensor& t = op.tensor(op.inputs[i]);
    if (!is_float(t.type) || t.constant || !moves(i) || std::ranges::find(r.argument_of, i) != r.argument_of.end()) continue;
    throw Error(fmt::format("the backward block of {0} has no gradient of {1}, and a call of {0} asks for one; add grad_{1} to it, "
                            "or declare {1} const, which stops gradients",
                            op.name, t.name),
                t.pos);
  }
}

// The tensor that holds t's adjoint: the cotangent itself where it is no more than that.
TensorId adjoint_tensor(Differentiation& d, TensorId t) {
  std::vector<Id> axes = target_axes(d, t);
  Id total = d.total(t);
  DType type = d.program.tensor(t).type;
  if (total == kNone) total = d.arena().constant(type, 0);
  const Node& n = d.arena()[total];
  if (n.op == Op::read && std::ranges::equal(n.args(), axes)) return n.symbol;
  return d.define("d_" + d.program.tensor(t).name, type, whole(d, t, axes), total);
}

// (inputs, tangents) -> tangents of the targets. What remains of the rule after differentiating by a cotangent
// may not contain it.
Program transposed(const Program& op, const StatedRule& r) {
  std::vector<std::string> names;
  for (TensorId t : r.cotangents) names.push_back(r.program.tensor(t).name);
  Program back = gather(gradient(r.program, {names}));
  std::vector<TensorId> results = back.gradients;
  back = as_forward(back);
  back.outputs = results;
  back = without_dead(back);
  for (const Definition& d : back.forward.definitions)
    for (TensorId read : tensors_read(*back.arena, d.body))
      if (std::ranges::find(r.cotangents, read) != r.cotangents.end())
        throw Error("op " + op.name + " has no forward derivative: its " + (op.custom_gradient ? "`grad`" : "backward") +
                        " is not linear in the cotangent " + back.tensor(read).name +
                        ", so it is no transposed Jacobian; state one that is, or let it be derived",
                    r.program.tensor(read).pos);
  return back;
}

}  // namespace

void pull_back_custom(Differentiation& d, const Program& op, const std::vector<TensorId>& arguments, const std::vector<TensorId>& targets) {
  StatedRule r = rule_of(op, arguments, targets);
  all_stated(op, r, [&](size_t i) { return d.is_active(arguments[i]); });
  for (size_t i = 0; i < r.cotangents.size(); ++i) r.tensors[r.cotangents[i]] = adjoint_tensor(d, targets[r.target_of[i]]);
  for (Definition& made : instantiate(d.program, r.program, r.tensors, op.name)) d.derived.push_back(std::move(made));
  for (size_t k = 0; k < r.program.outputs.size(); ++k) {
    TensorId argument = arguments[r.argument_of[k]];
    if (!d.is_active(argument)) continue;
    std::vector<Id> axes = target_axes(d, argument);
    DType type = d.program.tensor(argument).type;
    d.adjoint(argument).terms.push_back(d.arena().read(r.tensors[r.program.outputs[k]], type, axes));
    d.adjoint(argument).guards.push_back(kNone);
  }
}

void push_forward_custom(Differentiation& d, const Program& op, const std::vector<TensorId>& arguments,
                         const std::vector<TensorId>& targets, const std::vector<TensorId>& from, const std::vector<TensorId>& to) {
  StatedRule r = rule_of(op, arguments, targets);
  all_stated(op, r, [&](size_t i) { return from[i] != kNoTensor; });
  // Only what meets a tangent.
  std::vector<TensorId> results, tangents;
  for (size_t k = 0; k < r.argument_of.size(); ++k)
    if (TensorId t = from[r.argument_of[k]]; t != kNoTensor) {
      results.push_back(r.program.outputs[k]);
      tangents.push_back(t);
    }
  r.program.outputs = results;
  r.program = without_dead(r.program);
  Program push = transposed(op, r);
  r.tensors.resize(push.tensors.size(), kNoTensor);
  // The cotangents are not read, but tell their shapes.
  for (size_t i = 0; i < r.cotangents.size(); ++i) r.tensors[r.cotangents[i]] = targets[r.target_of[i]];
  for (size_t k = 0; k < tangents.size(); ++k) r.tensors[push.inputs[push.inputs.size() - tangents.size() + k]] = tangents[k];
  for (size_t i = 0; i < r.cotangents.size(); ++i) r.tensors[push.outputs[i]] = to[r.target_of[i]];
  for (Definition& made : instantiate(d.program, push, r.tensors, op.name)) d.derived.push_back(std::move(made));
}

}  // namespace xhat
