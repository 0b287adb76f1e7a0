// Data for a program, made up: for gradient checks, for comparing engines, for benchmarks. Equal seeds, equal
// data.
#pragma once
#include "expr/eval/evaluate.h"

namespace xhat {

struct RandomOptions {
  // Draw again, positive then in (0, 1), until every output is finite. Evaluates the forward: slow on large
  // tensors.
  bool finite = true;
};

// All inputs of p by name: floats are standard normals rounded to their type; integers that are used as an
// index, or compared with an axis, are within its extent, others in -4..4 (0..9 if unsigned). Throws Error if
// no data with finite outputs, and no error while running, is found.
Arrays random_inputs(const Program& p, const DimValues& dims, uint64_t seed,
                     const RandomOptions& options = {});

// All cotangents of p, standard normals.
Arrays random_cotangents(const Program& p, const DimValues& dims, uint64_t seed);

Array random_normals(DType type, std::vector<int64_t> shape, uint64_t seed);

}  // namespace xhat
