// Compares a program's gradients with finite differences of its forward.
//
//   GradientReport report = check_gradient(grad(op), sample_dims(op, seed));
//   if (!report.passed) std::cout << report.text();
//
// Everything is evaluated in double. Per input, random directions (which see every element at once) and
// single elements (which say where it is wrong) are compared. A second derivative is checked by passing the
// gradient of a gradient.
#pragma once
#include <string>
#include <vector>

#include "ad/random_inputs.h"

namespace xhat {

struct GradientCheckOptions {
  uint64_t seed = 1;
  int directions = 2;       // per input
  int elements = 24;        // per input; fewer if it has fewer
  double tolerance = 1e-5;  // of the difference, relative to the derivative or to the input's typical one
};

struct GradientComparison {
  std::string input;
  std::string gradient;
  bool passed = true;
  int directions = 0;  // compared
  int elements = 0;
  int kinks = 0;  // places without a derivative, where any slope between the two sides is right
  // The worst of all:
  double error = 0;  // relative; infinite if one of the two is not finite
  double derived = 0;
  double measured = 0;
  std::vector<int64_t> position;  // of the element
  bool direction = false;         // not an element, but a whole direction
};

struct GradientReport {
  bool passed = true;
  double tolerance = 0;
  std::vector<GradientComparison> inputs;
  Arrays data;               // the inputs and cotangents used
  std::string text() const;  // a line per input
};

// p has forward and backward definitions, cotangents and gradients. Throws Error where the data cannot be
// made or p cannot run on it.
GradientReport check_gradient(const Program& p, const DimValues& dims,
                              const GradientCheckOptions& options = {});
// With the caller's inputs; cotangents among them are used too, missing ones are drawn.
GradientReport check_gradient(const Program& p, const Arrays& inputs, const DimValues& dims,
                              const GradientCheckOptions& options = {});

}  // namespace xhat
