// Reads of what was just written: a place that says which write made it is what that write put there.
#pragma once
#include "expr/imperative/state.h"

namespace xhat::imperative {

// In a straight run, y[3] of y after `y[3] = u; y[5] = v` is u, and y[2] is that of the y before. Programs that write element by element
// in place (butterflies, rotations, sorting networks) so become what they compute, and not a chain of choices by place for every read,
// in which each version of y is looked up by all that follow it. What is written is named where it is neither a read nor a number.
void read_what_was_written(Context& c, Items& items);

}  // namespace xhat::imperative
