// What the rewrites of running sums and products share: prefix_sums, recurrences, running_parts.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "expr/core/program.h"
#include "expr/index/dims.h"

namespace xhat::fusion {

// The bound is i + a number, for i among the definition's axes: which one, and the number. None: it is something else.
std::optional<std::pair<size_t, int64_t>> axis_and_number(const Program& p, const DimValues& sizes, const Definition& d, Id bound);

std::vector<Id> indices_of(const std::vector<AxisRange>& axes);  // each at itself
std::vector<Id> extents_of(const std::vector<AxisRange>& axes);

// A definition like another one, of a new tensor over these axes.
Definition defined_over(Program& p, const Definition& like, const std::string& name, const std::vector<AxisRange>& axes, Id body);

}  // namespace xhat::fusion
