// Splits a program with a backward into one program per direction.
#include <algorithm>
#include <set>

#include "fusion/plan/plan.h"
#include "fusion/plan/settled_bits.h"

namespace xhat {
namespace {

Program only(const Program& p, Direction direction) {
  Program result = settle_bits(p);
  std::vector<Definition> both = std::move(result.body.definitions);
  result.body.definitions.clear();
  for (Definition& d : both) {
    if (d.direction != direction) continue;
    d.direction = Direction::forward;
    result.body.definitions.push_back(std::move(d));
  }
  result.cotangents.clear();
  result.gradients.clear();
  result.gradient_of.clear();
  result.custom_gradient = nullptr;
  return result;
}

}  // namespace

Program infer_program(const Program& p) { return without_dead(only(p, Direction::forward)); }

Program forward_program(const Program& p) {
  Program result = only(p, Direction::forward);
  for (TensorId t : stashes(p)) result.outputs.push_back(t);
  return without_dead(result);
}

Program backward_program(const Program& p) {
  Program result = only(p, Direction::backward);
  result.outputs = p.gradients;
  std::set<TensorId> defined, read;
  for (const Definition& d : result.body.definitions) {
    defined.insert(d.target());
    for (TensorId t : tensors_read(*p.arena, d.body)) read.insert(t);
  }
  result.inputs.clear();
  for (TensorId t : read) {
    if (defined.contains(t)) continue;
    result.tensors[t].role = Role::input;  // an output, a stash or a cotangent is one here
    result.inputs.push_back(t);
  }
  return result;
}

}  // namespace xhat
