// Numbers of plans as polynomials of the open dims, through plans at a grid of sizes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/host/variant.h"
#include "runtime/host/walk_archive.h"

namespace xhat::runtime {

constexpr int64_t kGridSizes = 3;  // per dim: a size is at most a square of it

// Per dim, the first of its sizes in the grid and the step to the next.
struct SizeGrid {
  std::vector<int64_t> first, step;
  size_t points() const;
  std::vector<int64_t> sizes(size_t point) const;  // of all dims
};

// The products, the base and the slopes of a variant; products name dims by their position in the grid. Empty text: they are right at all points
// of the grid. Else it says what differs: numbers other than sizes, or sizes that are no polynomial with whole coefficients.
std::string fit_polynomials(const SizeGrid& grid, const std::vector<Slots>& plans, AheadVariant& v);

// Does the variant give this plan at these sizes of the grid's dims?
bool gives(const AheadVariant& v, const std::vector<int64_t>& sizes, const Slots& plan);

}  // namespace xhat::runtime
