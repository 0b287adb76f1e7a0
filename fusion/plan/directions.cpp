// Splits a program with a backward into one program per direction.
#include "expr/core/mostly_zero.h"
#include "expr/core/uses.h"
#include "fusion/plan/plan.h"
#include "fusion/plan/settled_bits.h"

namespace xhat {
namespace {

// The region as the forward of a program of its own.
Program only(const Program& p, Region Program::*region) {
  Program result = settle_bits(p);
  mark_mostly_zero(result);  // of the forward's values the backward has no definitions
  result.forward = Region(std::move(result.*region));
  result.backward = {};
  result.cotangents.clear();
  result.gradients.clear();
  result.gradient_of.clear();
  result.custom_gradient = nullptr;
  return result;
}

}  // namespace

Program infer_program(const Program& p) { return without_dead(only(p, &Program::forward)); }

Program forward_program(const Program& p) {
  Program result = only(p, &Program::forward);
  for (TensorId t : stashes(p)) result.outputs.push_back(t);
  return without_dead(result);
}

Program backward_program(const Program& p) {
  Program result = only(p, &Program::backward);
  result.outputs = p.gradients;
  const Uses uses(result);
  result.inputs.clear();
  for (TensorId t = 0; t < result.tensors.size(); ++t) {
    if (uses.definition(t) || uses.readers(t).empty()) continue;
    result.tensors[t].role = Role::input;  // an output, a stash or a cotangent is one here
    result.inputs.push_back(t);
  }
  return result;
}

}  // namespace xhat
