// Why one value is kept for the backward, recomputed, or read from the caller, and what would change that.
//
//   rstd [N]: recomputed
//     is         1 / sqrt(v[n] / D + 1e-5)
//     ...
#pragma once
#include <string>

#include "runtime/explain/explain.h"

namespace xhat {

// given: as explain's. Throws Error, which names the values that there are, for an unknown name.
std::string explain_why(const Program& op, const CompileOptions& options, const DimValues& given, const std::string& name);

}  // namespace xhat
