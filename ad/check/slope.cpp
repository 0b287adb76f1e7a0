#include "ad/check/slope.h"

#include <algorithm>

namespace xhat {
namespace {

// Rounding errors of a forward, in units of epsilon times the size of what it adds up.
constexpr double kRoundingErrors = 16;
// Derivatives this much smaller than the typical one are held to the typical one's error.
constexpr double kNegligible = 1e-2;
// Slopes of two sides that differ by less, relatively, differ by curvature over the last step.
constexpr double kCurvature = 1e-3;
// With half the step the slopes of a jump are twice as steep, those of anything with slopes at both sides are not.
constexpr double kJump = 1.5;

bool between(double derived, std::pair<double, double> sides, double slack) {
  auto [low, high] = std::minmax(sides.first, sides.second);
  return derived >= low - slack && derived <= high + slack;
}

bool at_kink(double derived, const Sides& sides) {
  auto at = sides(kSteps.back());
  double slack = kCurvature * std::max(std::fabs(at.first), std::fabs(at.second));
  return std::fabs(at.first - at.second) > 2 * slack && between(derived, at, slack);
}

// The function jumps from the point to either side: at a tie, where a gradient is the mean of those beside it, and where a
// comparison of what is equal but for rounding, b with a - (a - b), comes out one way at the point and the other way at both
// sides. Differences measure the jump then, more and more of it with smaller steps. There is no slope: what lies between 0 and
// those of the jumps contradicts nothing; nor, where they grow to the smallest step, does any value that is smaller.
bool stands_apart(double derived, double step, const Sides& sides) {
  auto jumps = [](double x, double y) { return std::fabs(y) > kJump * std::fabs(x); };
  auto wide = sides(step), narrow = sides(step / 2);
  auto [low, high] = std::minmax({0.0, narrow.first, narrow.second});
  if (jumps(wide.first, narrow.first) && jumps(wide.second, narrow.second) && derived >= low && derived <= high) return true;
  auto last = sides(kSteps.back()), least = sides(kSteps.back() / 2);
  return jumps(last.first, least.first) && jumps(last.second, least.second) &&
         std::min(std::fabs(least.first), std::fabs(least.second)) > std::fabs(derived);
}

}  // namespace

void Slope::refine(double h, Difference wide, Difference narrow) {
  double c1 = wide.value / (2 * h), c2 = narrow.value / h;
  Slope s;
  s.value = (4 * c2 - c1) / 3;  // Richardson: the term in h^2 cancels
  s.step = h;
  s.noise = kRoundingErrors * std::numeric_limits<double>::epsilon() * wide.size / h;
  s.error = std::fabs(c2 - c1) + s.noise;
  if (std::isfinite(s.error) && s.error < error) *this = s;
}

bool Slope::settled(double derived, double tolerance) const {
  // What is rounding for the most part only grows with smaller steps.
  return error <= 0.1 * tolerance * std::max(std::fabs(derived), std::fabs(value)) || error <= 2 * noise;
}

Verdict judge(double derived, const Slope& measured, double typical, double tolerance, const Sides& sides) {
  double scale = std::max({std::fabs(derived), std::fabs(measured.value), kNegligible * typical});
  double off = std::fabs(derived - measured.value);
  Verdict v;
  v.good = std::isfinite(derived) && off <= tolerance * scale + measured.noise;
  // Where no step came to rest, what is known of the slope may not contradict. Twice: it is extrapolated.
  bool open = !measured.settled(derived, tolerance) && off <= 2 * measured.error;
  if (!v.good && std::isfinite(derived) &&
      (open || at_kink(derived, sides) || stands_apart(derived, measured.step, sides))) {
    v.good = v.kink = true;
    off = 0;
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (off != 0)
    v.error = std::isfinite(off) ? off / std::max(scale, std::numeric_limits<double>::min()) : kInfinity;
  if (v.good) v.error = std::min(v.error, tolerance);  // within the noise
  return v;
}

}  // namespace xhat
