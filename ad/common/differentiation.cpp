#include "ad/common/differentiation.h"

#include <algorithm>
#include <string_view>

#include "ad/common/body.h"
#include "ad/common/guards.h"
#include "expr/core/steps.h"

namespace xhat {

TensorId Differentiation::define(const std::string& name, DType type, std::span<const AxisRange> axes,
                                 Id body) {
  std::vector<Id> shape;
  for (const AxisRange& r : axes) shape.push_back(r.end);
  TensorId t = program.add_tensor(name, type, shape);
  define(t, axes, body);
  return t;
}

void Differentiation::define(TensorId t, std::span<const AxisRange> axes, Id body) {
  Definition made;
  made.targets = {t};
  made.axes.assign(axes.begin(), axes.end());
  made.body = body;
  derived.push_back(made);
}

Id Differentiation::total(TensorId t) {
  Id sum = kNone;
  for (Id term : adjoint(t).terms) sum = sum == kNone ? term : arena().add(sum, term);
  return sum;
}

namespace {

Id name_axis(const Program& p, Id extent, const std::vector<Id>& used) {
  Arena& a = *p.arena;
  std::vector<std::string> names;
  if (a[extent].op == Op::dim) {
    std::string lower = a.name(extent);
    std::ranges::transform(lower, lower.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
    names.push_back(lower);
  }
  for (char c : std::string_view("ijklmpqruv")) names.emplace_back(1, c);
  auto taken = [&](const std::string& name) {
    return contains(used, a.axis(name)) || p.find(name) ||
           std::ranges::any_of(p.dims, [&](const Dim& d) { return a.name(d.dim) == name; });
  };
  for (const std::string& name : names)
    if (!taken(name)) return a.axis(name);
  return a.fresh_axis(a.axis("i"), used);
}

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

}  // namespace

std::vector<AxisRange> whole(Differentiation& d, TensorId t, std::span<const Id> axes) {
  std::vector<AxisRange> ranges;
  for (size_t i = 0; i < axes.size(); ++i)
    ranges.push_back({axes[i], d.arena().integer(0), d.program.tensor(t).shape[i]});
  return ranges;
}

namespace {

// Dims that have a definition give way to it everywhere: a parameter's extent may not use them.
Program with_dims_written_out(const Program& p) {
  Program result = p;
  Arena& a = *p.arena;
  Replacements map;
  for (const Dim& d : p.dims)
    if (d.definition != kNone) map[d.dim] = d.definition;
  auto uses = [&](Id id) {
    return std::ranges::any_of(reachable(a, id), [&](Id x) { return map.contains(x); });
  };
  for (size_t depth = 0; depth < p.dims.size(); ++depth)  // a definition may use others, without a cycle
    for (auto& [dim, definition] : map)
      if (uses(definition)) definition = substitute(a, definition, map);
  auto write_out = [&](Id& id) {
    if (id != kNone && uses(id)) id = substitute(a, id, map);
  };
  for (Tensor& t : result.tensors)
    for (Id& extent : t.shape) write_out(extent);
  for (Definition& d : result.definitions()) {
    write_out(d.body);
    for (AxisRange& r : d.axes) {
      write_out(r.begin);
      write_out(r.end);
    }
  }
  for (Precondition& c : result.preconditions) write_out(c.condition);
  std::erase_if(result.dims, [](const Dim& d) { return d.definition != kNone; });
  return result;
}

bool has_defined_extent(const Program& p, TensorId t) {
  return std::ranges::any_of(reachable(*p.arena, p.tensor(t).shape), [&](Id id) {
    return std::ranges::any_of(p.dims, [&](const Dim& d) { return d.dim == id && d.definition != kNone; });
  });
}

}  // namespace

Program without_backward(const Program& p) {
  Program f = p;
  f.backward = {};
  f.gradients.clear();
  f.gradient_of.clear();
  f.cotangents.clear();
  f.custom_gradient = nullptr;
  if (p.steps)
    f.steps = std::make_shared<const Steps>(map_blocks(*p.steps, [](const Block& block) {
      Block b = block;
      b.with_gradient = nullptr;
      return b;
    }));
  return f;
}

std::vector<std::string> names_of(const Program& p, const std::vector<TensorId>& tensors) {
  std::vector<std::string> names;
  for (TensorId t : tensors) names.push_back(p.tensor(t).name);
  return names;
}

Program as_forward(const Program& p) {
  if (p.cotangents.empty() && p.gradients.empty()) return p;
  bool plain = std::ranges::none_of(p.cotangents, [&](TensorId t) { return has_defined_extent(p, t); });
  Program result = plain ? p : with_dims_written_out(p);
  for (TensorId t : p.cotangents) {
    result.tensors[t].role = Role::input;
    result.inputs.push_back(t);
  }
  result.outputs.insert(result.outputs.end(), p.gradients.begin(), p.gradients.end());
  result.cotangents.clear();
  result.gradients.clear();
  result.gradient_of.clear();
  result.custom_gradient = nullptr;
  for (Definition& d : std::exchange(result.backward, {}).definitions) {
    d.derived = true;
    result.forward.definitions.push_back(std::move(d));
  }
  return result;
}

void mark_active(Differentiation& d, const std::vector<TensorId>& wrt) {
  const Program& p = d.program;
  d.active.assign(p.tensors.size(), 0);
  for (TensorId t : wrt) d.active[t] = 1;
  for (const Definition& definition : p.forward.definitions) {
    if (!definition.is_call()) {
      d.active[definition.target()] = is_active(d, definition);
      continue;
    }
    bool any = std::ranges::any_of(definition.arguments, [&](TensorId t) { return d.is_active(t); });
    for (TensorId t : definition.targets) d.active[t] = any && is_float(p.tensor(t).type);
  }
}

std::vector<TensorId> asked_for(const Program& p, const std::vector<std::string>& names) {
  if (names.empty()) return differentiable_inputs(p);
  std::vector<TensorId> wrt;
  for (const std::string& name : names) {
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

const std::vector<Id>& target_axes(Differentiation& d, TensorId t, std::span<const Id> wanted,
                                   std::span<const Id> avoid) {
  TensorAdjoint& adjoint = d.adjoint(t);
  size_t rank = d.program.tensor(t).shape.size();
  if (adjoint.axes.size() == rank) return adjoint.axes;
  std::vector<Id> used(wanted.begin(), wanted.end());
  used.insert(used.end(), avoid.begin(), avoid.end());
  for (size_t i = 0; i < rank; ++i) {
    Id axis = i < wanted.size() ? wanted[i] : kNone;
    if (axis == kNone) axis = name_axis(d.program, d.program.tensor(t).shape[i], used);
    used.push_back(axis);
    adjoint.axes.push_back(axis);
  }
  return adjoint.axes;
}

}  // namespace xhat
