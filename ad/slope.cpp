#include "ad/slope.h"

#include <algorithm>

namespace xhat {
namespace {

// Rounding errors of a forward, in units of epsilon times the size of what it adds up.
constexpr double kRoundingErrors = 16;
// Derivatives this much smaller than the typical one are held to the typical one's error.
constexpr double kNegligible = 1e-2;
// Slopes of two sides that differ by less, relatively, differ by curvature over the last step.
constexpr double kCurvature = 1e-3;

}  // namespace

void Slope::refine(double h, Difference wide, Difference narrow) {
  double c1 = wide.value / (2 * h), c2 = narrow.value / h;
  Slope s;
  s.value = (4 * c2 - c1) / 3;  // Richardson: the term in h^2 cancels
  s.noise = kRoundingErrors * std::numeric_limits<double>::epsilon() * wide.size / h;
  s.error = std::fabs(c2 - c1) + s.noise;
  if (std::isfinite(s.error) && s.error < error) *this = s;
}

bool Slope::settled(double derived, double tolerance) const {
  // What is rounding for the most part only grows with smaller steps.
  return error <= 0.1 * tolerance * std::max(std::fabs(derived), std::fabs(value)) || error <= 2 * noise;
}

Verdict judge(double derived, const Slope& measured, double typical, double tolerance,
              const std::function<std::pair<double, double>()>& sides) {
  double scale = std::max({std::fabs(derived), std::fabs(measured.value), kNegligible * typical});
  double off = std::fabs(derived - measured.value);
  Verdict v;
  v.good = std::isfinite(derived) && off <= tolerance * scale + measured.noise;
  if (!v.good && std::isfinite(derived)) {
    auto [left, right] = sides();
    auto [low, high] = std::minmax(left, right);
    double slack = kCurvature * std::max(std::fabs(low), std::fabs(high));
    if (high - low > 2 * slack && derived >= low - slack && derived <= high + slack) {
      v.good = v.kink = true;
      off = 0;
    }
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (off != 0)
    v.error = std::isfinite(off) ? off / std::max(scale, std::numeric_limits<double>::min()) : kInfinity;
  if (v.good) v.error = std::min(v.error, tolerance);  // within the noise
  return v;
}

}  // namespace xhat
