// Indices that depend on data are checked before a direction writes anything.
#pragma once
#include <optional>

#include "expr/program.h"

namespace xhat::runtime {

// A program with one bool scalar per definition that reads at data-dependent indices: true if one of them falls outside.
// None if there is nothing to check.
std::optional<Program> index_checks(const Program& direction);

}  // namespace xhat::runtime
