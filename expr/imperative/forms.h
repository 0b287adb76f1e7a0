// Items on their way to steps: runs of definitions, with their writes gone but for rows.
#pragma once
#include <set>
#include <variant>
#include <vector>

#include "expr/core/steps.h"
#include "expr/imperative/form.h"
#include "expr/imperative/state.h"

namespace xhat::imperative {

struct Run;
struct LoopForm;
struct BranchForm;
using Forms = std::vector<std::variant<Run, Update, LoopForm, BranchForm>>;
struct Run {
  std::vector<Definition> definitions;
};
struct LoopForm {
  LoopItem item;                 // but for its items
  std::vector<AxisRange> loops;  // around its items, whose ranges are known before the run
  std::set<Id> variables;        // of all loops around its items
  Forms test, body;
};
struct BranchForm {
  BranchItem item;
  Forms then, otherwise;
};

// An update writes in place if nobody reads what was there before. Numbers that later definitions make of the old value are made before it:
//
//   x_1 = x with [i] = t                                    c = x[m] > x[i]
//   y = if x[m] > x[i] then x_1[k] else 0      =>           x_1 = x with [i] = t
//                                                           y = if c then x_1[k] else 0
void look_before_writing(Context& c, Forms& forms);

// In a loop, what a write left alone is read after it, and so is what the write computed, if the value
// before is then needed no more:
//
//   x_1 = x with [k] = x[k]/s,  y[i] = if k < i then x[i] - x[k]/s else 0      =>      y[i] = if k < i then x_1[i] - x_1[k] else 0
void read_newest(Context& c, Items& items);

}  // namespace xhat::imperative
