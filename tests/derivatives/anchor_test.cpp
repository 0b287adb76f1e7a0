// Other systems' gradient tests, by the evaluator: against finite differences, forward against reverse mode, closed forms.
#include <gtest/gtest.h>

#include "ad/check/gradcheck.h"
#include "ad/gather/gather.h"
#include "ad/reverse/gradient.h"
#include "tests/helpers/anchor_ops.h"
#include "tests/helpers/golden.h"

namespace xhat::anchor_test {
namespace {

using namespace xhat::testing;

class TvmTest : public ::testing::TestWithParam<AnchorOp> {};

TEST_P(TvmTest, GradientsAgree) {
  Program op = parse_op(GetParam().text);
  GradcheckReport report = gradcheck(op, anchor_data(op, GetParam().low, GetParam().high), {}, {.directions = 1, .elements = 8});
  EXPECT_TRUE(report.passed) << GetParam().text << "\n" << report.text();
}

// No Jacobian: every tensor of the backward is at most as large as the largest input or output.
TEST_P(TvmTest, NoTensorIsLargerThanWhatTheUserNamed) {
  Program op = parse_op(GetParam().text), gathered = gather(gradient(op));
  auto elements = [&](const Program& p, TensorId t) {
    int64_t n = 1;
    for (int64_t extent : shape_of(p, t, {})) n *= extent;
    return n;
  };
  int64_t largest = 0;
  for (TensorId t = 0; t < op.tensors.size(); ++t) largest = std::max(largest, elements(op, t));
  for (const Definition& d : gathered.definitions()) EXPECT_LE(elements(gathered, d.target()), largest) << gathered.tensor(d.target()).name;
}

INSTANTIATE_TEST_SUITE_P(Ops, TvmTest, ::testing::ValuesIn(tvm_ops()), [](const auto& row) { return row.param.name; });

class HalideTest : public ::testing::TestWithParam<AnchorValue> {};

TEST_P(HalideTest, ClosedFormsHold) {
  Program derived = gather(gradient(parse_op(GetParam().text)));
  Arrays got = evaluate_on(derived, anchor_data(derived, GetParam()), {});
  ASSERT_EQ(derived.gradients.size(), GetParam().gradients.size());
  for (size_t i = 0; i < derived.gradients.size(); ++i) {
    const std::string& name = derived.tensor(derived.gradients[i]).name;
    const auto &g = got.at(name).reals, &want = GetParam().gradients[i];
    ASSERT_EQ(g.size(), want.size()) << name;
    for (size_t k = 0; k < g.size(); ++k) EXPECT_NEAR(g[k], want[k], 1e-12) << name << " " << k;
  }
}

INSTANTIATE_TEST_SUITE_P(Values, HalideTest, ::testing::ValuesIn(halide_values()), [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace xhat::anchor_test
