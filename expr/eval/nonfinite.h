// Where a NaN or an infinity of a program's results comes from: back from the result, through every operand that is not finite, to the
// operation that made it of finite ones.
//
//   e[i] = exp(x[i])            x[2] = 1000 makes e[2] inf, and y[2] = inf / inf a NaN: the answer is exp(x[i]), at e[2]
//   y[i] = e[i] / sum(k: e[k])
#pragma once
#include <optional>

#include "expr/core/error.h"
#include "expr/eval/evaluate.h"

namespace xhat {

// A run gave a NaN or an infinity, and was asked to look for one.
class NonFinite : public Error {
 public:
  using Error::Error;
};

struct NonFiniteOrigin {
  std::string message;  // "e[2] is inf: exp(x[i]) makes it of x[i] = 1000; y[2] is nan because of it"
  Pos pos;              // of the definition, or of the tensor that was given so
  bool made = false;    // by an operation; else the values came in so, or the program writes them
};
// Runs the program, whose calls are expanded, on these inputs (of the backward too, if cotangents are among them). Of several origins the
// one that stands first in the program; none where outputs and gradients are finite.
std::optional<NonFiniteOrigin> find_nonfinite(const Program& p, const Arrays& inputs, const DimValues& dims);

}  // namespace xhat
