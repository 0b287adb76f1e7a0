// The page of docs/viz.md for lazy arrays: what realizing them would take, or what it took.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "runtime/lazy/array.h"
#include "runtime/viz/viz.h"

namespace xhat::lazy {

// One page per program that computes the arrays together, in the order in which they run; nothing runs. An array that is realized is shown
// by the program that would compute it from what it was made of. Throws Error if nothing has to be computed.
std::vector<std::string> viz_pages(std::span<const Array> arrays, const VizOptions& viz_options = {});

// The page of the last of these programs, of which there is mostly one.
//   std::ofstream("loss.html") << viz({loss, gw, gb});
std::string viz(std::span<const Array> arrays, const VizOptions& viz_options = {});
inline std::string viz(const std::vector<Array>& arrays, const VizOptions& viz_options = {}) {
  return viz(std::span<const Array>(arrays), viz_options);
}
inline std::string viz(const Array& x, const VizOptions& viz_options = {}) { return viz(std::span<const Array>(&x, 1), viz_options); }

}  // namespace xhat::lazy
