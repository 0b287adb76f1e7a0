// Other systems' gradient tests as kernels, against the evaluator.
#include <gtest/gtest.h>

#include "ad/reverse/gradient.h"
#include "tests/helpers/anchor_ops.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::kernel_anchor_test {
namespace {

using namespace xhat::testing;

// f64 throughout; sums of a few hundred terms, and powers.
constexpr double kTolerance = 1e-9;

class TvmKernelTest : public ::testing::TestWithParam<AnchorOp> {};
TEST_P(TvmKernelTest, AgreesWithTheEvaluator) {
  Program op = parse_op(GetParam().text), derived = gradient(op);
  Arrays data = anchor_data(derived, GetParam().low, GetParam().high);
  EXPECT_EQ(difference(evaluate_on(derived, data, {}), run_both(compile(op), data, {}), kTolerance), "") << GetParam().text;
}
INSTANTIATE_TEST_SUITE_P(Ops, TvmKernelTest, ::testing::ValuesIn(tvm_ops()), [](const auto& row) { return row.param.name; });

class HalideKernelTest : public ::testing::TestWithParam<AnchorValue> {};
TEST_P(HalideKernelTest, AgreesWithTheEvaluator) {
  Program op = parse_op(GetParam().text), derived = gradient(op);
  Arrays data = anchor_data(derived, GetParam());
  EXPECT_EQ(difference(evaluate_on(derived, data, {}), run_both(compile(op), data, {}), kTolerance), "") << GetParam().text;
}
INSTANTIATE_TEST_SUITE_P(Values, HalideKernelTest, ::testing::ValuesIn(halide_values()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace xhat::kernel_anchor_test
