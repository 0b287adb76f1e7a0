#include "ad/gradient.h"

#include <algorithm>

#include "ad/expand_calls.h"
#include "ad/sweep.h"

namespace xhat {
namespace {

std::string list(const Program& p, const std::vector<TensorId>& tensors) {
  std::string text;
  for (TensorId t : tensors) text += (text.empty() ? "" : ", ") + p.tensor(t).name;
  return text.empty() ? "none" : text;
}

std::vector<TensorId> differentiable_inputs(const Program& p) {
  std::vector<TensorId> found;
  for (TensorId t : p.inputs)
    if (is_float(p.tensor(t).type) && !p.tensor(t).constant) found.push_back(t);
  return found;
}

std::vector<TensorId> asked_for(const Program& p, const GradientOptions& options) {
  if (options.wrt.empty()) return differentiable_inputs(p);
  std::vector<TensorId> wrt;
  for (const std::string& name : options.wrt) {
    auto t = p.find(name);
    if (!t || !contains(p.inputs, *t))
      throw Error("op " + p.name + " has no input " + name + " to differentiate by; its inputs are " +
                  list(p, p.inputs));
    const Tensor& tensor = p.tensor(*t);
    if (!is_float(tensor.type))
      throw Error("input " + name + " of op " + p.name + " has no gradient: it is " +
                      std::string(name_of(tensor.type)) + ", not a float. its float inputs are " +
                      list(p, differentiable_inputs(p)),
                  tensor.pos);
    if (tensor.constant)
      throw Error("input " + name + " of op " + p.name + " is const and is never differentiated; remove " +
                      "`const`, or do not ask for it",
                  tensor.pos);
    if (!contains(wrt, *t)) wrt.push_back(*t);
  }
  return wrt;
}

// A program with a backward, taken as one forward.
Program as_forward(const Program& p) {
  if (p.cotangents.empty() && p.gradients.empty()) return p;
  Program result = p;
  for (TensorId t : p.cotangents) {
    result.tensors[t].role = Role::input;
    result.inputs.push_back(t);
  }
  result.outputs.insert(result.outputs.end(), p.gradients.begin(), p.gradients.end());
  result.cotangents.clear();
  result.gradients.clear();
  result.gradient_of.clear();
  result.custom_gradient = nullptr;
  for (Definition& d : result.body.definitions) d.direction = Direction::forward;
  return result;
}

void mark_active(Differentiation& d, const std::vector<TensorId>& wrt) {
  const Program& p = d.program;
  d.active.assign(p.tensors.size(), 0);
  for (TensorId t : wrt) d.active[t] = 1;
  for (const Definition& definition : p.body.definitions) {
    if (!definition.is_call()) {
      d.active[definition.target()] = is_active(d, definition);
      continue;
    }
    bool any = std::ranges::any_of(definition.arguments, [&](TensorId t) { return d.is_active(t); });
    for (TensorId t : definition.targets) d.active[t] = any && is_float(p.tensor(t).type);
  }
}

// A cotangent per float output; it is the first term of the output's adjoint.
void add_cotangents(Differentiation& d) {
  Program& p = d.program;
  for (const Definition& definition : p.body.definitions) {
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

std::vector<AxisRange> whole(Differentiation& d, TensorId t, const std::vector<Id>& axes) {
  std::vector<AxisRange> ranges;
  for (size_t i = 0; i < axes.size(); ++i)
    ranges.push_back({axes[i], d.arena().integer(0), d.program.tensor(t).shape[i]});
  return ranges;
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

// Puts an op's own `grad` in place of its derivative. Its parameters are the op's inputs and outputs by name,
// its other parameters the cotangents in order; its outputs are d<input> by name, or else the float inputs in
// order.
void apply_custom(Differentiation& d, const Program& op, const std::vector<TensorId>& arguments,
                  const std::vector<TensorId>& targets) {
  Program rule = expand_calls(*op.custom_gradient);
  std::vector<TensorId> tensors(rule.tensors.size(), kNoTensor);
  std::vector<TensorId> cotangents, parameters;
  for (size_t i = 0; i < op.outputs.size(); ++i)
    if (is_float(op.tensor(op.outputs[i]).type)) cotangents.push_back(targets[i]);
  for (TensorId t : rule.inputs) {
    const std::string& name = rule.tensor(t).name;
    for (size_t i = 0; i < op.inputs.size(); ++i)
      if (op.tensor(op.inputs[i]).name == name) tensors[t] = arguments[i];
    for (size_t i = 0; i < op.outputs.size(); ++i)
      if (op.tensor(op.outputs[i]).name == name) tensors[t] = targets[i];
    if (tensors[t] == kNoTensor) parameters.push_back(t);
  }
  if (parameters.size() != cotangents.size())
    throw Bug("grad " + op.name + " has " + std::to_string(parameters.size()) + " cotangents for " +
              std::to_string(cotangents.size()) + " float outputs");
  for (size_t i = 0; i < parameters.size(); ++i) tensors[parameters[i]] = adjoint_tensor(d, cotangents[i]);

  for (Definition& made : instantiate(d.program, rule, tensors, op.name, Direction::backward))
    d.backward.push_back(std::move(made));

  std::vector<size_t> in_order;
  for (size_t i = 0; i < op.inputs.size(); ++i)
    if (is_float(op.tensor(op.inputs[i]).type) && !op.tensor(op.inputs[i]).constant) in_order.push_back(i);
  for (size_t k = 0; k < rule.outputs.size(); ++k) {
    std::string name = rule.tensor(rule.outputs[k]).name;
    auto named = std::ranges::find_if(op.inputs, [&](TensorId t) { return "d" + op.tensor(t).name == name; });
    if (named == op.inputs.end() && k >= in_order.size())
      throw Bug("grad " + op.name + ": " + name + " is of no input");
    size_t i = named == op.inputs.end() ? in_order[k] : static_cast<size_t>(named - op.inputs.begin());
    TensorId argument = arguments[i];
    if (!d.is_active(argument)) continue;
    std::vector<Id> axes = target_axes(d, argument);
    DType type = d.program.tensor(argument).type;
    d.adjoint(argument).terms.push_back(d.arena().read(tensors[rule.outputs[k]], type, axes));
    d.adjoint(argument).guards.push_back(kNone);
  }
}

void sweep_back(Differentiation& d) {
  const std::vector<Definition> forward = d.program.body.definitions;
  for (size_t i = forward.size(); i-- > 0;) {
    const Definition& definition = forward[i];
    bool wanted = std::ranges::any_of(
        definition.targets, [&](TensorId t) { return d.is_active(t) && !d.adjoint(t).terms.empty(); });
    if (!wanted) continue;
    if (definition.is_call())
      apply_custom(d, *definition.callee, definition.arguments, definition.targets);
    else
      sweep(d, definition);
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
  Differentiation d;
  d.program = ordered(expand_calls(as_forward(source), true));
  std::vector<TensorId> wrt = asked_for(d.program, options);
  mark_active(d, wrt);
  add_cotangents(d);
  if (d.program.custom_gradient)
    apply_custom(d, d.program, d.program.inputs, d.program.outputs);
  else
    sweep_back(d);
  add_gradients(d, wrt);

  Program result = expand_calls(d.program);  // the calls that were kept for their gradients
  result.custom_gradient = nullptr;
  for (Definition& definition : d.backward) result.body.definitions.push_back(std::move(definition));
  result = with_clear_axes(without_dead(ordered(result)));
  verify(result);
  return result;
}

}  // namespace xhat
