// Recognizes the printed form of scatter-add, sum(b, l if ids[b,l] == v: dy[b,d]), also of products, maxima and minima: a reduction whose
// condition pins a left axis to an index that data decide, or that gather could not solve for. Testing every v for every (b, l) would cost
// extent(v) times too much, so kernels let every (b, l) add to the one v that it names.
#pragma once
#include <optional>
#include <vector>

#include "expr/core/program.h"

namespace xhat {

struct Scatter {
  std::vector<std::pair<size_t, Id>> targets;  // left axis number, index expression over the reduced axes and other left axes
  Id rest;                                     // the rest of the condition (constant true if there is none)
};

std::optional<Scatter> as_scatter(Arena& a, const Definition& d);

}  // namespace xhat
