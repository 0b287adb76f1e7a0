// Central differences with step control, in doubles: what a derivative is measured by.
#pragma once
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

namespace xhat {

// Large steps suffer from curvature, small ones from rounding; the first whose estimated error is small enough is
// taken. The last also serves to look at both sides of a kink.
inline constexpr std::array kSteps = {1e-3, 1e-4, 1e-5, 1e-6};

// to - from, and the size of what was subtracted.
struct Difference {
  double value = 0;
  double size = 0;
};

struct Slope {
  double value = 0;
  double error = std::numeric_limits<double>::infinity();  // estimated
  double noise = 0;                                        // the part of it that is rounding
  double step = kSteps.back();                             // that gave it

  // One more step size: the differences over 2h and over h around the same point. Keeps the better estimate.
  void refine(double h, Difference wide, Difference narrow);
  bool settled(double derived, double tolerance) const;
};

// A derived number held against a measured one.
struct Verdict {
  bool good = true;
  bool kink = false;  // it lies between the slopes of the two sides, which differ, or the point stands apart from both
  double error = 0;   // relative to the larger of the two, or to what is typical
};

// typical: the usual size of such derivatives; where both are far below it, its error counts. sides: the slopes to
// the left and to the right with a step, asked for only where the two disagree.
using Sides = std::function<std::pair<double, double>(double step)>;
Verdict judge(double derived, const Slope& measured, double typical, double tolerance, const Sides& sides);

}  // namespace xhat
