// Both ways to many calls in one are the same: new axes on tensors. Where a tensor has them, every read of it has them as further indices, and every
// tensor that is computed of it has them too.
//   vmap         the new axis is the first of the inputs named
//   jacobian     the new axes are the last of a tangent that is 1 at one element of the input, which they count, and else 0
#include "ad/forward/transform.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "ad/common/differentiation.h"
#include "ad/forward/jvp.h"
#include "expr/index/expand_calls.h"

namespace xhat {
namespace {

bool calls_state_gradients(const Program& p) {
  return p.custom_gradient || std::ranges::any_of(p.forward.definitions, [](const Definition& d) {
           return d.is_call() && (states_gradient(*d.callee) || calls_state_gradients(*d.callee));
         });
}

// Names that no axis, tensor or dim of the program has.
class Names {
 public:
  explicit Names(const Program& p) {
    const Arena& a = *p.arena;
    std::vector<Id> roots;
    for (const Tensor& t : p.tensors) taken_.insert(t.name);
    for (const Dim& d : p.dims) taken_.insert(a.name(d.dim));
    for (const Definition& d : p.definitions()) {
      for (const AxisRange& r : d.axes) taken_.insert(a.name(r.axis));
      roots.push_back(d.body);
    }
    for (Id axis : all_axes(a, roots)) taken_.insert(a.name(axis));
  }
  std::string fresh(const std::string& wanted) {
    std::string name = wanted;
    for (int i = 1; !taken_.insert(name).second; ++i) name = wanted + std::to_string(i);
    return name;
  }

 private:
  std::set<std::string> taken_;
};

// Adds axes to the tensors marked, and to all that is computed of them; to the outputs in any case. What is marked and has a definition has them there
// already. In front of the tensors' own axes, or behind them.
class NewAxes {
 public:
  NewAxes(Program& p, std::vector<AxisRange> axes, bool front) : p_(p), axes_(std::move(axes)), front_(front), has_(p.tensors.size(), 0) {}

  void mark(TensorId t, bool defined) {
    has_[t] = 1;
    if (!defined)
      widen(t);
    else
      defined_.insert(t);
  }

  // outputs: that have the axes in any case.
  void run(const std::vector<TensorId>& outputs) {
    for (Definition& d : p_.forward.definitions) {
      const TensorId t = d.target();
      if (defined_.contains(t)) continue;
      const auto read = tensors_read(*p_.arena, d.body);
      if (std::ranges::find(outputs, t) == outputs.end() && std::ranges::none_of(read, [&](TensorId r) { return has_[r]; })) continue;
      d.body = with_indices(d.body);
      d.axes.insert(front_ ? d.axes.begin() : d.axes.end(), axes_.begin(), axes_.end());
      has_[t] = 1;
      widen(t);
    }
  }

 private:
  void widen(TensorId t) {
    std::vector<Id>& shape = p_.tensors[t].shape;
    std::vector<Id> extents;
    for (const AxisRange& r : axes_) extents.push_back(r.end);
    shape.insert(front_ ? shape.begin() : shape.end(), extents.begin(), extents.end());
  }

  Id with_indices(Id body) {
    Arena& a = *p_.arena;
    return rewrite(a, body, [&](Id id) {
      const Node& n = a[id];
      if (!is_read(n.op) || !has_[n.symbol]) return id;
      std::vector<Id> indices(read_indices(n).begin(), read_indices(n).end());
      std::vector<Id> added;
      for (const AxisRange& r : axes_) added.push_back(r.axis);
      indices.insert(front_ ? indices.begin() : indices.end(), added.begin(), added.end());
      return n.op == Op::read ? a.read(n.symbol, n.type, indices) : a.read_or(n.symbol, n.type, indices, n.args().back());
    });
  }

  Program& p_;
  const std::vector<AxisRange> axes_;
  const bool front_;
  std::vector<char> has_;
  std::set<TensorId> defined_;
};

void refuse_loops(const Program& op, const char* what) {
  if (op.steps) throw Error(op.name + ": " + what + " of a program with loops or branches is not there yet");
}

// The op's outputs, then the derivatives of `of` along every element of x, called <prefix>_<output>_<x>.
Program with_jacobian_along(Program op, const std::vector<TensorId>& of, const std::string& x, const std::string& prefix) {
  const std::vector<TensorId> outputs = op.outputs;
  Program p = jvp(op, {{x}});
  Arena& a = *p.arena;
  // The tangents of float outputs follow the outputs; those that nobody asked for go.
  std::vector<TensorId> derivatives;
  size_t next = outputs.size();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!is_float(op.tensors[outputs[i]].type)) continue;
    if (std::ranges::find(of, outputs[i]) != of.end()) derivatives.push_back(p.outputs[next]);
    ++next;
  }
  const TensorId tangent = p.inputs.back();
  p.inputs.pop_back();
  p.tensors[tangent].role = Role::defined;
  Names names(p);
  const std::vector<Id> shape = p.tensors[tangent].shape;
  std::vector<AxisRange> own, added;
  Id one = kNone;
  for (Id extent : shape) {
    own.push_back({a.axis(names.fresh("i")), a.integer(0), extent});
    added.push_back({a.axis(names.fresh("j")), a.integer(0), extent});
    const Id same = a.eq(own.back().axis, added.back().axis);
    one = one == kNone ? same : a.land(one, same);
  }
  const DType type = p.tensors[tangent].type;
  Definition unit;
  unit.derived = true;
  unit.targets = {tangent};
  unit.body = shape.empty() ? a.constant(type, 1) : a.select(one, a.constant(type, 1), a.constant(type, 0));
  unit.axes = own;
  unit.axes.insert(unit.axes.end(), added.begin(), added.end());
  p.tensors[tangent].shape.insert(p.tensors[tangent].shape.end(), shape.begin(), shape.end());
  p.forward.definitions.insert(p.forward.definitions.begin(), unit);
  NewAxes axes(p, added, false);
  axes.mark(tangent, true);
  axes.run(derivatives);
  p.outputs.resize(outputs.size());
  for (size_t i = 0; i < derivatives.size(); ++i) {
    p.tensors[derivatives[i]].name = names.fresh(prefix + "_" + op.tensors[of[i]].name + "_" + x);
    p.outputs.push_back(derivatives[i]);
  }
  return without_dead(ordered(p));
}

}  // namespace

Program vmap(const Program& source, const VmapOptions& options) {
  refuse_loops(source, "vmap");
  const Program op = as_forward(source);
  if (calls_state_gradients(op))
    throw Error(op.name + ": an op that states its own gradient, or calls one that does, has no vmap yet: the statement is of one call");
  Program p = ordered(expand_calls(op));
  Arena& a = *p.arena;
  std::vector<TensorId> inputs;
  for (const std::string& name : options.inputs) {
    auto t = std::ranges::find(p.inputs, name, [&](TensorId i) { return p.tensors[i].name; });
    if (t == p.inputs.end())
      throw Error(
          fmt::format("op {} has no input {} to map over; its inputs are {}", op.name, name, fmt::join(names_of(p, p.inputs), ", ")));
    inputs.push_back(*t);
  }
  if (options.inputs.empty()) inputs = p.inputs;
  if (inputs.empty()) throw Error("op " + op.name + " has no inputs to map over");
  Names names(p);
  const Id dim = a.dim(names.fresh("B"));
  const Id axis = a.axis(names.fresh("b"));
  // Dims stand in the order of their first appearance.
  std::set<Id> before;
  for (TensorId t : p.inputs) {
    if (std::ranges::find(inputs, t) != inputs.end()) break;
    for (Id id : reachable(a, p.tensors[t].shape))
      if (a[id].op == Op::dim) before.insert(id);
  }
  auto place = std::ranges::find_if(p.dims, [&](const Dim& d) { return !before.contains(d.dim); });
  p.dims.insert(place, Dim{dim, kNone, {}});
  NewAxes axes(p, {{axis, a.integer(0), dim}}, true);
  for (TensorId t : inputs) axes.mark(t, false);
  axes.run(p.outputs);
  return finished_op(std::move(p), op.name + "_vmap");
}

Program jacobian(const Program& source, const JacobianOptions& options) {
  refuse_loops(source, "the jacobian");
  Program p = as_forward(source);
  const std::string name = p.name;
  const std::vector<std::string> wrt = names_of(p, asked_for(p, options.wrt));
  std::vector<std::string> of;
  for (TensorId t : p.outputs)
    if (is_float(p.tensors[t].type)) of.push_back(p.tensors[t].name);
  for (const std::string& x : wrt) {
    std::vector<TensorId> outputs;
    for (const std::string& y : of) outputs.push_back(*p.find(y));
    p = with_jacobian_along(std::move(p), outputs, x, "jac");
  }
  return finished_op(std::move(p), name + "_jacobian");
}

Program hessian(const Program& source, const JacobianOptions& options) {
  refuse_loops(source, "the hessian");
  const Program op = as_forward(source);
  std::vector<TensorId> floats;
  for (TensorId t : op.outputs)
    if (is_float(op.tensors[t].type)) floats.push_back(t);
  if (floats.size() != 1 || !op.tensors[floats[0]].shape.empty())
    throw Error(fmt::format("op {}: the hessian is of one float output, a scalar, but there are {}; jacobian() of vjp() takes others",
                            op.name, fmt::join(names_of(op, floats), ", ")));
  const std::vector<std::string> wrt = names_of(op, asked_for(op, options.wrt));
  Program p = vjp(op, {wrt});
  // The cotangent is 1.
  const TensorId cotangent = p.inputs.back();
  p.inputs.pop_back();
  p.tensors[cotangent].role = Role::defined;
  Definition one;
  one.derived = true;
  one.targets = {cotangent};
  one.body = p.arena->constant(p.tensors[cotangent].type, 1);
  p.forward.definitions.insert(p.forward.definitions.begin(), one);
  std::vector<std::string> gradients;
  for (size_t i = 0; i < wrt.size(); ++i) {
    TensorId t = p.outputs[op.outputs.size() + i];
    gradients.push_back(p.tensors[t].name);
  }
  for (const std::string& x : wrt) {
    std::vector<TensorId> of;
    for (const std::string& g : gradients) of.push_back(*p.find(g));
    p = with_jacobian_along(std::move(p), of, x, "hess");
  }
  for (size_t i = op.outputs.size() + wrt.size(), k = 0; i < p.outputs.size(); ++i, ++k) {
    const std::string wanted = "hess_" + wrt[k % wrt.size()] + "_" + wrt[k / wrt.size()];
    if (!p.find(wanted)) p.tensors[p.outputs[i]].name = wanted;
  }
  return finished_op(std::move(p), op.name + "_hessian");
}

}  // namespace xhat
