// What the rewrites of running sums and products share: prefix_sums, recurrences, running_parts.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "expr/core/program.h"
#include "expr/index/dims.h"

namespace xhat::fusion {

constexpr int64_t kAgain_ps = 200;  // what is cheaper to compute in a loop in order, than to be written in vectors before and read again

// The bound is i + a number, for i among the definition's axes: which one, and the number. None: it is something else.
std::optional<std::pair<size_t, int64_t>> axis_and_number(const Program& p, const DimValues& sizes, const Definition& d, Id bound);

// A reduction of which one end moves with an axis: sum(u in 0..i+1: …), sum(u in max(j+1,2)..min(i,N): …). What else bounds it does not
// move with that axis, and is a condition of its terms where no number says it.
struct MovingEnd {
  size_t axis = 0;       // of the definition's axes
  int64_t by = 0;        // the end is at axis + by
  bool begins = false;   // it is the begin that moves; what is summed falls
  int64_t fixed = 0;     // the other end, or how far it reaches at most
  Id condition = kNone;  // of the reduction, with what of the bounds is none of the two
};
// None: not a reduction over one axis, or no end moves so.
std::optional<MovingEnd> moving_end(const Program& p, const DimValues& sizes, const Definition& d);

std::vector<Id> indices_of(const std::vector<AxisRange>& axes);  // each at itself
std::vector<Id> extents_of(const std::vector<AxisRange>& axes);

// A definition like another one, of a new tensor over these axes.
Definition defined_over(Program& p, const Definition& like, const std::string& name, const std::vector<AxisRange>& axes, Id body);

}  // namespace xhat::fusion
