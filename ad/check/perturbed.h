// A program whose inputs are moved, as finite differences do, while what stands in stop_gradient stays as it was at the point that
// they are moved from: its derivative there is the one that the language gives it.
//
//   y[i] = x[i] * stop_gradient(x[i])   =>   op f(x, x_frozen) -> (y) { y[i] = x[i] * x_frozen[i] }
//
// Every stopped value is computed from inputs of its own, by frozen copies of the definitions that it needs. So it does not matter where
// it stands (in a reduction, in an op that is called, in a gradient of a gradient).
#pragma once
#include <string>

#include "expr/eval/evaluate.h"

namespace xhat {

class Perturbed {
 public:
  // p: a program with a backward counts as one op. point: its inputs and cotangents.
  Perturbed(const Program& p, const Arrays& point);
  // Outputs and gradients, in double. moved: as point, with other values.
  Arrays evaluate(const Arrays& moved, const DimValues& dims) const;

 private:
  Program program_;
  Arrays frozen_;  // inputs of program_ beside those of p
};

// Does something stand in stop_gradient inside of a loop or branch? That is not kept as it was: finite differences of such a program are no
// derivatives.
bool moves_what_is_stopped(const Program& p);

}  // namespace xhat
