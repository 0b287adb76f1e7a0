// Kernels of the GPU targets against the evaluator: on CUDA where there is a device, else on those that any machine has: PoCL runs
// OpenCL and lavapipe runs Vulkan on the CPU.
#include <gtest/gtest.h>

#include <algorithm>

#include "ad/reverse/gradient.h"
#include "runtime/device/device.h"
#include "tests/helpers/gpu_ops.h"
#include "tests/helpers/need_device.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat {
namespace {

using namespace xhat::testing;

// f32 kernels against doubles, relative to the largest element: sums of some hundred terms.
constexpr double kTolerance = 5e-5;
// Where f16 or bf16 are stored on the way; they round at 2^-11 and 2^-8.
constexpr double kNarrowTolerance = 1e-2;

double tolerance_of(const Program& p) {
  auto narrow = [](const Tensor& t) { return t.type == DType::f16 || t.type == DType::bf16; };
  return std::ranges::any_of(p.tensors, narrow) ? kNarrowTolerance : kTolerance;
}

void expect_agreement(const Program& op, Target target, const DimValues& dims) {
  SCOPED_TRACE(dims_text(dims));
  Program derived = gradient(op);
  Arrays data = random_data(derived, dims, 5);
  CompileOptions options;
  options.target = target;
  for (const std::string& name : free_dims(op)) options.dims[name] = dims.at(name);
  CompiledOp kernels = compile(op, options);
  EXPECT_EQ(difference(evaluate_on(op, data, dims), run_infer(kernels, data, dims), tolerance_of(op)), "") << "infer";
  EXPECT_EQ(difference(evaluate_on(derived, data, dims), run_both(kernels, data, dims), tolerance_of(op)), "") << "forward and backward";
}

class GpuOpsTest : public ::testing::TestWithParam<GpuOp> {};

TEST_P(GpuOpsTest, SmallOddSizesAgreeWithTheEvaluator) {
  XHAT_NEED_DEVICE(tested_gpu());
  expect_agreement(GetParam().parse(), tested_gpu(), GetParam().small);
}

TEST_P(GpuOpsTest, ManyTilesAgreeWithTheEvaluator) {
  XHAT_NEED_DEVICE(tested_gpu());
  expect_agreement(GetParam().parse(), tested_gpu(), GetParam().large);
}

TEST(GpuTiles, AnArgmaxHasAllOfItsAxis) {
  XHAT_NEED_DEVICE(tested_gpu());
  expect_agreement(parse_op("op f(x: f32[N,D]) -> (z, best) { z[d] = sum(n: x[n,d]*x[n,d]); best[n] = argmax(d: x[n,d]) }"), tested_gpu(),
                   {{"N", 33}, {"D", 12}});
}

class GpuVulkanTest : public ::testing::TestWithParam<GpuOp> {};

TEST_P(GpuVulkanTest, SmallOddSizesAgreeWithTheEvaluator) {
  XHAT_NEED_DEVICE(Target::vulkan);
  expect_agreement(GetParam().parse(), Target::vulkan, GetParam().small);
}

INSTANTIATE_TEST_SUITE_P(Ops, GpuVulkanTest, ::testing::ValuesIn(gpu_ops()), name_of_gpu_op);
INSTANTIATE_TEST_SUITE_P(Ops, GpuOpsTest, ::testing::ValuesIn(gpu_ops()), name_of_gpu_op);

// What ops of neural networks don't use: types, random numbers, odd indices, reductions of every kind.
class GpuLanguageTest : public ::testing::TestWithParam<GoldenFile> {};

TEST_P(GpuLanguageTest, AgreesWithTheEvaluator) {
  XHAT_NEED_DEVICE(tested_gpu());
  Program op = parse_op(GetParam().program);
  expect_agreement(op, tested_gpu(), sample_dims(op, 3));
}

std::vector<GoldenFile> language_files() {
  std::vector<GoldenFile> files;
  for (const auto& path : golden_paths()) files.push_back(read_golden(path));
  return files;
}

INSTANTIATE_TEST_SUITE_P(Golden, GpuLanguageTest, ::testing::ValuesIn(language_files()), [](const auto& file) { return file.param.name; });

}  // namespace
}  // namespace xhat
