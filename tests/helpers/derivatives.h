// What the tests of both modes ask of an op's derivatives: compared with central differences, and with each other.
#pragma once
#include <random>
#include <string>
#include <vector>

#include "expr/eval/evaluate.h"

namespace xhat::testing {

// Normals, moved off 0 and by a shift; integers 0, 1, 2 in turn.
Array random_array(std::mt19937_64& random, DType type, const std::vector<int64_t>& shape, double shift);
double inner(const Array& x, const Array& y);

// Dims solved from the inputs; in doubles.
Arrays run(const Program& p, const Arrays& inputs);
Array vector(std::vector<double> values);  // f64

struct DerivativeCase {
  DimValues dims;
  double shift = 0;   // > 0: positive inputs, at least this
  Arrays fixed = {};  // inputs with these values
  int orders = 2;
};

// Along random directions: gradient(p), before and after gather, with central differences of <dy, y>; jvp(p) with
// the gradient; hvp(p) with central differences of the gradient. Then the same for gradient(p) as p. What is
// derived reads back as printed.
void check_derivatives(const Program& p, const DerivativeCase& setup, int order = 1);
void check_derivatives(const std::string& text, const DerivativeCase& setup = {});

}  // namespace xhat::testing
