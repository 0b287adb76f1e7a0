// What a derivation of an op costs, by its plan; nothing is timed. For bench/spellings.cpp.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "ad/check/random_inputs.h"
#include "runtime/call/compile.h"
#include "runtime/explain/explain.h"

namespace xhat::bench {

// Forward and backward together.
struct SpellingCost {
  static constexpr std::array<const char*, 6> kColumns = {"sums fwd", "sums bwd", "kernels", "stash", "moved", "flops"};
  std::array<int64_t, 6> values{};
};

inline SpellingCost cost_of(const Program& op, const DimValues& sizes) {
  const Explanation e = explain(op, {}, sizes);
  return {{e.forward.reductions, e.backward.reductions, e.forward.kernel_count + e.backward.kernel_count, e.stash_bytes(),
           e.forward.bytes_moved + e.backward.bytes_moved, e.forward.flops + e.backward.flops}};
}

// Above another one in this column by more than a tenth. Ignored are a hundredth of the traffic for the stash (a number per row), and one
// operation per eight bytes of it (a chosen branch is no operation, a maximum is one; both wait for memory).
inline bool worse(const SpellingCost& x, const SpellingCost& other, size_t column) {
  constexpr size_t kStash = 3, kMoved = 4, kFlops = 5;
  const double moved = static_cast<double>(other.values[kMoved]);
  const double ignored = column == kStash ? 0.01 * moved : column == kFlops ? moved / 8 : 0;
  return static_cast<double>(x.values[column]) > 1.1 * static_cast<double>(other.values[column]) + ignored;
}

// Is it above another one in some column, and below it in none?
inline bool worse(const SpellingCost& x, const SpellingCost& other) {
  bool above = false;
  for (size_t i = 0; i < x.values.size(); ++i) {
    if (worse(other, x, i)) return false;
    above = above || worse(x, other, i);
  }
  return above;
}

// Inputs and cotangents for every spelling of a function.
inline Arrays data_for(const Program& op, const DimValues& small) {
  Arrays data = random_inputs(op, small, 7);
  data.merge(random_cotangents(derive(op).program, small, 8));
  return data;
}

// Results and gradients after all passes, by the evaluator in f64.
inline Arrays results_of(const Program& op, const Arrays& data, const DimValues& small) {
  return evaluate(derive(op).program, data, small, kExact);
}

// Empty, or what differs.
inline std::string difference(const Arrays& expected, const Arrays& found) {
  constexpr double kTolerance = 1e-7;  // constants such as 0.7071 are written with 16 digits or fewer
  for (const auto& [name, x] : expected) {
    auto it = found.find(name);
    if (it == found.end() || it->second.shape != x.shape) return name + " is missing, or has another shape";
    double scale = 1;
    for (size_t i = 0; i < x.size(); ++i) scale = std::max(scale, std::abs(x.at(i)));
    for (size_t i = 0; i < x.size(); ++i)
      if (!(std::abs(x.at(i) - it->second.at(i)) <= kTolerance * scale))
        return fmt::format("{} is {} where the first spelling has {}", name, it->second.at(i), x.at(i));
  }
  return "";
}

}  // namespace xhat::bench
