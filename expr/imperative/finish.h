// The last stage: a program of items as an op, or as steps.
#pragma once
#include "expr/imperative/state.h"

namespace xhat::imperative {

struct Output {
  std::string name;
  TensorId value = 0;
  Pos pos;
};

Program as_op(Context& c, Items items, const std::vector<Output>& outputs);
Program as_steps(Context& c, Items items, const std::vector<Output>& outputs);

// New names, all different: those of inputs and outputs stay, the others are called after what they are the value of. `live` in order
// of their definition; axes and dims have their names already.
void name_tensors(Program& p, const std::vector<TensorId>& live, const std::vector<Output>& outputs, const std::set<std::string>& taken);

}  // namespace xhat::imperative
