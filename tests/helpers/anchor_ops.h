// Cases of other systems' gradient tests, as data: what they compute, and where known the gradient in closed form.
//   TVM      tests/python/te/test_te_autodiff.py, v0.19: the loss is the sum of the output, checked numerically
//   Halide   test/correctness/autodiff.cpp: closed forms; and the cases that its gradients get wrong
#pragma once
#include <string>
#include <vector>

#include "expr/eval/evaluate.h"

namespace xhat::testing {

struct AnchorOp {
  std::string name;
  std::string text;               // all data f64
  double low = -10, high = 10;    // of the inputs, uniform
};
std::vector<AnchorOp> tvm_ops();
inline void PrintTo(const AnchorOp& op, std::ostream* out) { *out << op.name; }

// The op on `inputs` (by parameter, row-major), with cotangents of 1 or as given: outputs and gradients.
struct AnchorValue {
  std::string name;
  std::string text;
  std::vector<std::vector<double>> inputs;
  std::vector<std::vector<double>> cotangents;  // per float output; none: ones
  std::vector<std::vector<double>> gradients;   // per float input that is not const; empty: not compared
};
std::vector<AnchorValue> halide_values();
inline void PrintTo(const AnchorValue& v, std::ostream* out) { *out << v.name; }

// Of p: inputs uniform in [low, high), integers in 0..99; cotangents 1.
Arrays anchor_data(const Program& p, double low, double high);
Arrays anchor_data(const Program& p, const AnchorValue& v);

}  // namespace xhat::testing
