// Checks an op's derivatives: against finite differences, and forward mode against reverse mode.
//
//   GradcheckReport report = gradcheck(op, sample_dims(op, seed));
//   if (!report.passed) std::cout << report.text();
//
// Everything is evaluated in double. What stands in stop_gradient stays where it is when finite differences move the inputs
// (ad/check/perturbed.h). Four comparisons:
//   gradient        of <cotangents, outputs>, with central differences: random directions (which see every element at
//                   once) and single elements (which say where it is wrong)
//   inner product   <dy, J v> by forward mode through the definitions, with <J^T dy, v> by the gradient: no steps, so
//                   wrong in the last digits is wrong
//   jvp             along random directions, every element of every output, with central differences
//   hvp             the same for the gradients: order 2
// A gradient stated by the user (`grad f(…)`, or a backward block) is what `gradient`, `jvp` and `hvp` take, and is
// checked so; the inner product always takes the definitions.
#pragma once
#include <string>
#include <vector>

#include "ad/check/random_inputs.h"

namespace xhat {

struct GradcheckOptions {
  uint64_t seed = 1;
  int directions = 2;       // per gradient; and of jvp and hvp
  int elements = 24;        // per gradient; fewer if it has fewer
  double tolerance = 1e-5;  // of the difference, relative to the derivative or to the tensor's typical one
  int orders = 2;           // 1: no hvp
  std::vector<std::string> wrt = {};  // inputs; empty: every float input that is not const
};

// One derivative, over all that was compared of it.
struct DerivativeComparison {
  enum class Kind : uint8_t { gradient, inner_product, jvp, hvp };
  Kind kind = Kind::gradient;
  std::string name;   // of the derivative: grad_x, jvp_y, hvp_x; "<dy, J v>" for the inner product
  std::string input;  // gradient, hvp: the input it belongs to
  bool passed = true;
  double tolerance = 0;
  int directions = 0;  // compared
  int elements = 0;
  int kinks = 0;  // places without a derivative, where any slope between the two sides is right
  // The worst of all:
  double error = 0;               // relative; infinite if one of the two is not finite
  double derived = 0;             // inner product: by the gradient
  double measured = 0;            // inner product: by forward mode
  std::vector<int64_t> position;  // of the element
  bool direction = false;         // not an element, but a whole direction
  std::string note;               // why nothing could be compared
};
std::string_view name_of(DerivativeComparison::Kind kind);

struct GradcheckReport {
  bool passed = true;
  std::vector<DerivativeComparison> comparisons;
  Arrays data;               // the inputs and cotangents used
  std::string text() const;  // a line per comparison
};

// All four. A stated gradient that is not linear in its cotangents (and so has no jvp) fails, with a note. Throws Error
// where the data cannot be made or the op cannot run on it, and for a wrong name in wrt.
GradcheckReport gradcheck(const Program& op, const DimValues& dims, const GradcheckOptions& options = {});
// With the caller's inputs; cotangents among them are used too, missing ones are drawn.
GradcheckReport gradcheck(const Program& op, const Arrays& inputs, const DimValues& dims,
                          const GradcheckOptions& options = {});

// gradient and inner product of p, which has forward and backward definitions, cotangents and gradients: what
// gradient() gives, or a backward that somebody wrote. A gradient of a gradient is such a program, too.
GradcheckReport check_gradient(const Program& p, const DimValues& dims, const GradcheckOptions& options = {});
GradcheckReport check_gradient(const Program& p, const Arrays& inputs, const DimValues& dims,
                               const GradcheckOptions& options = {});

}  // namespace xhat
