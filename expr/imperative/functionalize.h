// A program that mutates tensors, made pure.
//
//   run symbolically   names are views of storages, whose values are tensors that are written once (symbolic, expression, mapping)
//   without loops      loops whose iterations do not depend on each other become axes and reductions (loops)
//   to definitions     writes become selects, or rows of what a loop hands on; straight runs become blocks (image, steps_form)
//   clean              what nothing reads is dropped, names are chosen
#pragma once
#include <string>
#include <vector>

#include "expr/imperative/form.h"

namespace xhat::imperative {

struct Stage {
  std::string name, text;
};
// What one program of a text (the last one by default) is after each stage: its values in order, with all loops; these without the loops
// that become axes and reductions; the op, or the steps.
std::vector<Stage> stages(const std::string& text, const std::string& name = "");

// Items as text: `y_1 = y with [i] = x[i] for i` is a write.
std::string dump(Program p, const Items& items);

}  // namespace xhat::imperative
