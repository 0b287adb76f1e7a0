// Kernels of an op, with its derivatives, agree with the evaluator. Header only.
#pragma once
#include <gtest/gtest.h>

#include "ad/reverse/gradient.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::testing {

inline void expect_agreement(const Program& op, const CompileOptions& options, const DimValues& dims, double tolerance = 5e-5) {
  Program derived = gradient(op);
  Arrays data = random_data(derived, dims, 5);
  CompiledOp kernels = compile(op, options);
  EXPECT_EQ(difference(evaluate_on(op, data, dims), run_infer(kernels, data, dims), tolerance), "");
  EXPECT_EQ(difference(evaluate_on(derived, data, dims), run_both(kernels, data, dims), tolerance), "");
}

inline void expect_agreement(const std::string& text, const DimValues& dims, const CompileOptions& options = {}) {
  SCOPED_TRACE(text + dims_text(dims));
  Program op = parse_op(text), derived = gradient(op);
  Arrays data = random_data(derived, dims, 3);
  EXPECT_EQ(difference(evaluate_on(derived, data, dims), run_both(compile(op, options), data, dims), 1e-4), "");
}

}  // namespace xhat::testing
