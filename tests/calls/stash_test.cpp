// What is kept in other types than it was computed in, as kernels: masks in bytes, floats in halves; sizes that fill no vector.
#include <gtest/gtest.h>

#include <algorithm>

#include "ad/reverse/gradient.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::stash_test {
namespace {

using namespace xhat::testing;

const char* const kOps[] = {
    "op f(x: f32[N,D]) -> (y) { y[n,d] = relu(x[n,d]) }",
    "op f(x: f32[N,D]) -> (y) { y[n,d] = clamp(x[n,d], -0.5, 0.5) }",
    "op f(x: f32[N,D]) -> (y) { y[n,d] = max(x[n,d], -x[n,d]) }",
    "op f(x: f32[N,D]) -> (y) { y[n,d] = abs(x[n,d]) }",
    "op f(x: f32[N,D]) -> (y) { y[n] = max(d: x[n,d]) }",
    "op f(x: f32[N,2*D]) -> (y) { y[n, d in 0..D] = max(r in 0..2: x[n,2*d+r]) }",
    "op f(x: f32[N,D], w: f32[D,D]) -> (y) { y[n,k] = relu(sum(d: x[n,d] * w[d,k])) }",
};

CompileOptions nothing_stays() {
  CompileOptions options;
  options.threads = 2;
  options.stash.kept_by_caller.emplace();
  return options;
}

class StashTypeTest : public ::testing::TestWithParam<const char*> {};

TEST_P(StashTypeTest, MasksAreKeptAndRead) {
  Program op = parse_op(GetParam()), derived = gradient(op);
  CompiledOp kernels = compile(op, nothing_stays());
  const Program& p = kernels.program();
  bool mask =
      std::ranges::any_of(stashes(p), [&](TensorId t) { return byte_size(p.tensors[t].type) == 1; });
  EXPECT_TRUE(mask) << print(p);
  for (int64_t n : {1, 5, 37}) {
    DimValues dims = {{"N", 3}, {"D", n}};
    Arrays data = random_data(derived, dims, 5);
    EXPECT_EQ(difference(evaluate_on(derived, data, dims), run_both(kernels, data, dims), 5e-5), "")
        << print(p);
  }
}

TEST_P(StashTypeTest, HalvesAreKeptAndRead) {
  Program op = parse_op(GetParam()), derived = gradient(op);
  DimValues dims = {{"N", 3}, {"D", 37}};
  Arrays data = random_data(derived, dims, 5);
  for (DType type : {DType::bf16, DType::f16}) {
    CompileOptions options = nothing_stays();
    options.stash.store_as = type;
    CompiledOp kernels = compile(op, options);
    double eps = type == DType::bf16 ? 0x1p-8 : 0x1p-11;
    EXPECT_EQ(difference(evaluate_on(derived, data, dims), run_both(kernels, data, dims), 4 * eps), "")
        << print(kernels.program());
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, StashTypeTest, ::testing::ValuesIn(kOps));

// Bytes that a call really holds.
TEST(StashType, BytesOfACall) {
  Program op = parse_op("op f(x: f32[N]) -> (y) { y[n] = relu(x[n]) }");
  CompiledOp kernels = compile(op, nothing_stays());
  std::vector<float> x(1000, 1.0F), y(1000);
  Stash stash = kernels.forward({{"x", TensorView(x.data(), {1000})}, {"y", TensorView(y.data(), {1000})}});
  EXPECT_EQ(stash.bytes(), 1000);
}

}  // namespace
}  // namespace xhat::stash_test
