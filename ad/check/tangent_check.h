// Results of a program that change along a direction, element by element: what jvp and hvp say of it, and what
// central differences do.
#pragma once
#include "ad/check/gradcheck.h"
#include "ad/check/slope.h"

namespace xhat {

// result: of p. product: of `tangents`, its derivative as the inputs move; also the comparison's name.
struct TangentPair {
  std::string result, product;
  std::string input;  // hvp: what the gradient belongs to
};

// `tangents` has p's parameters, then one tangent per input that moves (the names in moving, parallel to the last
// inputs of `tangents`). data: p's inputs and cotangents.
std::vector<DerivativeComparison> check_tangents(DerivativeComparison::Kind kind, const Program& p,
                                                 const Program& tangents,
                                                 const std::vector<TangentPair>& pairs,
                                                 const std::vector<std::string>& moving, const Arrays& data,
                                                 const DimValues& dims, const GradcheckOptions& options);

// Takes the verdict on one element (or direction) into the comparison: counts it, and keeps the worst. True if it is
// the worst so far.
bool note(DerivativeComparison& c, const Verdict& v, double derived, double measured);

}  // namespace xhat
