// A program that mutates tensors, made pure.
//
//   run symbolically   names are views of storages, whose values are tensors that are written once (symbolic, expression, mapping)
//   without loops      loops whose iterations do not depend on each other become axes and reductions (loops)
//   to definitions     writes become selects, or rows of what a loop hands on; straight runs become blocks (image, steps_form)
//   clean              what nothing reads is dropped, names are chosen
#pragma once
#include "expr/core/steps.h"
#include "expr/imperative/form.h"

namespace xhat::imperative {

// What runs, as text: definitions as they are, blocks as calls with their ops behind, loops and branches around them. For people and tests.
std::string dump(const Program& p);
// The items of a program that is being made pure, for debugging.
std::string dump(const Program& p, const Items& items);

}  // namespace xhat::imperative
