#include "runtime/lazy/later.h"

#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "expr/core/array.h"
#include "expr/index/dims.h"
#include "expr/text/import.h"
#include "fusion/plan/plan.h"
#include "runtime/call/passes.h"

namespace xhat::lazy::detail {
namespace {

// One copy of each, for ever: their addresses are part of the structure of graphs that call them.
std::shared_ptr<const Program> one_copy(Program p) {
  static auto* known = new std::unordered_map<std::string, std::shared_ptr<const Program>>;
  auto& copy = (*known)[print(p)];
  if (!copy) copy = std::make_shared<const Program>(std::move(p));
  return copy;
}

std::unordered_set<Id> dims_in(const Program& p, std::span<const Id> roots) {
  std::unordered_set<Id> found;
  for (Id root : roots)
    for (Id id : reachable(*p.arena, root))
      if ((*p.arena)[id].op == Op::dim) found.insert(id);
  return found;
}

// Whoever calls p knows its dims by the shapes of its inputs: those of `others` join them that give what the others do not. False: that
// is not enough.
bool give_dims(Program& p, std::span<const TensorId> others) {
  std::vector<Id> roots;
  for (const Definition& d : p.forward.definitions) {
    roots.push_back(d.body);
    for (const AxisRange& r : d.axes) roots.insert(roots.end(), {r.begin, r.end});
    for (TensorId t : d.targets) roots.insert(roots.end(), p.tensors[t].shape.begin(), p.tensors[t].shape.end());
  }
  for (TensorId t : p.inputs) roots.insert(roots.end(), p.tensors[t].shape.begin(), p.tensors[t].shape.end());
  std::unordered_set<Id> missing = dims_in(p, roots);
  auto give = [&](TensorId t) {
    size_t given = 0;
    for (Id extent : p.tensors[t].shape) given += missing.erase(extent);
    return given > 0;
  };
  for (TensorId t : p.inputs) give(t);
  for (TensorId t : others) {
    if (missing.empty()) break;
    if (has_tensor(p.inputs, t) || !give(t)) continue;
    p.tensors[t].role = xhat::Role::input;
    p.inputs.push_back(t);
  }
  return missing.empty();
}

uint32_t place_of(std::span<const TensorId> list, TensorId t) { return static_cast<uint32_t>(std::ranges::find(list, t) - list.begin()); }

// Where an input of the backward of d comes from.
Later::Argument source_of(const Program& d, std::span<const TensorId> kept, TensorId t) {
  using enum Later::From;
  for (const auto& [from, list] : {std::pair(input, std::span<const TensorId>(d.inputs)), {result, d.outputs}, {cotangent, d.cotangents}})
    if (has_tensor(list, t)) return {from, place_of(list, t)};
  return {Later::From::stash, place_of(kept, t)};
}

// p with the results, and what is kept, by a call of the forward.
Program with_call(const Program& source, const Later& later) {
  Program p = source;
  const Program& f = *later.forward;
  std::unordered_map<Id, Id> dims;
  for (size_t i = 0; i < f.inputs.size(); ++i) {
    const auto& wanted = f.tensors[f.inputs[i]].shape;
    for (size_t d = 0; d < wanted.size(); ++d) dims.try_emplace(wanted[d], p.tensors[p.inputs[i]].shape[d]);
  }
  Definition call;
  call.callee = later.forward;
  call.arguments = p.inputs;
  for (uint32_t r : later.results) call.targets.push_back(p.outputs[r]);
  std::erase_if(p.forward.definitions, [&](const Definition& d) {
    return std::ranges::any_of(d.targets, [&](TensorId t) { return has_tensor(call.targets, t); });
  });
  for (size_t k = later.results.size(); k < f.outputs.size(); ++k) {
    const xhat::Tensor& t = f.tensors[f.outputs[k]];
    std::vector<Id> shape;
    for (Id extent : t.shape) shape.push_back(import(*p.arena, *f.arena, extent, {}, dims));
    const TensorId made = p.add_tensor("kept_" + t.name, t.type, std::move(shape));
    call.targets.push_back(made);
    p.outputs.push_back(made);
  }
  p.forward.definitions.push_back(std::move(call));
  return without_dead(ordered(p));
}

// A call is one step with several results: none of them may have been made by a call that has others as well.
bool can_be_called(const Program& p, std::span<const uint32_t> results) {
  return std::ranges::none_of(p.forward.definitions, [&](const Definition& d) {
    return d.targets.size() > 1 && std::ranges::any_of(results, [&](uint32_t r) { return has_tensor(d.targets, p.outputs[r]); });
  });
}

}  // namespace

std::optional<Later> keep_for_later(Program& p, std::span<const uint32_t> results, std::span<const uint32_t> by,
                                    const CompileOptions& options, const DimValues& dims) {
  if (p.steps || results.empty() || by.empty() || !can_be_called(p, results)) return std::nullopt;
  Later later;
  later.results.assign(results.begin(), results.end());
  later.by.assign(by.begin(), by.end());
  Program written = own_copy(p);
  written.outputs.clear();
  std::vector<std::string> wrt;
  for (uint32_t r : results) written.outputs.push_back(p.outputs[r]);
  for (uint32_t i : by) wrt.push_back(p.tensors[p.inputs[i]].name);
  written = without_dead(written);
  Program derived;
  try {
    CompileOptions wanted = options;
    wanted.differentiate = wanted.differentiated = true;
    wanted.wrt = {};
    derived = derive(runtime::with_gradients(written, wrt), wanted, dims).program;
  } catch (const Error&) {
    return std::nullopt;  // whoever asks for the gradient is told
  }
  if (derived.steps || derived.inputs.size() != p.inputs.size() || derived.gradient_of.size() != by.size()) return std::nullopt;
  for (size_t i = 0; i < by.size(); ++i)
    if (derived.gradient_of[i] != derived.inputs[by[i]]) return std::nullopt;
  const std::vector<TensorId> kept = stashes(derived);
  Program forward = forward_program(derived), backward = backward_program(derived);
  if (!give_dims(backward, derived.inputs)) return std::nullopt;
  for (TensorId t : backward.inputs) later.arguments.push_back(source_of(derived, kept, t));
  for (TensorId t : kept) later.kept.push_back({derived.tensors[t].type, Shape(shape_of(derived, t, dims))});
  later.forward = one_copy(std::move(forward));
  later.backward = one_copy(std::move(backward));
  p = with_call(p, later);
  return later;
}

}  // namespace xhat::lazy::detail
