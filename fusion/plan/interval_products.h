// Products between two places: prod(j in k+1..t+1: a[j]), as a definition over k and t that is read where a weight stands.
#pragma once
#include <optional>

#include "expr/core/program.h"
#include "expr/index/dims.h"

namespace xhat::fusion {

// prod(axis in from + first..to + end: factor), which depends on `from` and `to` by its range alone. Of from <= to.
struct IntervalProduct {
  Id factor = kNone, axis = kNone;
  int64_t first = 0, end = 0;
};

// What `read` is, if it is one; from, to: axes where it stands.
std::optional<IntervalProduct> interval_product(const Program& p, const DimValues& sizes, Id read, Id from, Id to);

}  // namespace xhat::fusion
