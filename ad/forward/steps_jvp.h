// Forward mode through loops and branches.
#pragma once
#include "ad/forward/jvp.h"

namespace xhat {

// A program with steps that has a tangent beside each value that moves: blocks compute both, rows of tangents are written where rows are,
// and loops carry both.
Program jvp_of_steps(const Program& p, const JvpOptions& options);

}  // namespace xhat
