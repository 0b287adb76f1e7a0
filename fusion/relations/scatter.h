// Recognizes the printed form of scatter-add, sum(b, l if ids[b,l] == v: dy[b,d]): a reduction whose condition pins a
// left axis to a data-dependent index. Walking v for every (b, l) would cost extent(v) times too much; instead every
// (b, l) adds to the one v it names.
#pragma once
#include <optional>
#include <vector>

#include "expr/core/program.h"

namespace xhat {

struct Scatter {
  std::vector<std::pair<size_t, Id>> targets;  // left axis number, index expression over the reduced axes
  Id rest;                                     // what else the condition says (constant true if nothing)
};

std::optional<Scatter> as_scatter(Arena& a, const Definition& d);

}  // namespace xhat
