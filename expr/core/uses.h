// Who defines each tensor of a program, who reads it, and whether it is a result: found in one walk over all bodies, where
// Program::definition_of looks at all definitions for each question.
#pragma once
#include "expr/core/program.h"

namespace xhat {

// Points into the program: its bodies may be rewritten meanwhile, its lists of definitions may not change.
class Uses {
 public:
  explicit Uses(const Program& p);
  const Definition* definition(TensorId t) const { return definition_[t]; }  // nullptr: a parameter, or nothing at all
  bool is_result(TensorId t) const { return is_result_[t]; }  // an output or a gradient
  // Each once, in the program's order.
  const std::vector<const Definition*>& readers(TensorId t) const { return readers_[t]; }

 private:
  std::vector<const Definition*> definition_;            // by tensor
  std::vector<bool> is_result_;                          // by tensor
  std::vector<std::vector<const Definition*>> readers_;  // by tensor
};

// Tensors read by a definition: by its body, ascending; of a call the arguments.
std::vector<TensorId> tensors_read(const Arena& a, const Definition& d);

}  // namespace xhat
