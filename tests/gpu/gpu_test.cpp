// Kernels of the GPU targets against the evaluator: on CUDA where there is a device, else on those that any machine has: PoCL runs
// OpenCL and lavapipe runs Vulkan on the CPU.
#include <gtest/gtest.h>

#include <algorithm>

#include "ad/reverse/gradient.h"
#include "runtime/device/device.h"
#include "tests/helpers/gpu_ops.h"
#include "tests/helpers/need_device.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::gpu_test {
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

// Few blocks, so that their tiles are made smaller than the axis that is walked in phases, and what follows the product stays in the tile.
TEST(GpuTiles, WhatIsMadeInPhasesIsReadByTheBlockThatMadeIt) {
  XHAT_NEED_DEVICE(tested_gpu());
  expect_agreement(parse_op(R"(op f(x: f32[N,C,T], w: f32[C,K,4]) -> (y, m) {
    z[n,k,t in 0..2*T] = sum(c, p in 0..T if 0 <= t-2*p && t-2*p < 4: x[n,c,p]*w[c,k,t-2*p])
    y[n,k,t] = tanh(z[n,k,t])
    m[n,k] = sum(t: z[n,k,t])
  })"),
                   tested_gpu(), {{"N", 2}, {"C", 8}, {"K", 8}, {"T", 20}});
}

// Sums of few results and many terms, which several blocks share, alone and with what is made of them; and such as cannot be shared.
struct SumInParts {
  const char* name;
  const char* program;
  DimValues dims;
};
void PrintTo(const SumInParts& sum, std::ostream* out) { *out << sum.name; }

class GpuSumsInParts : public ::testing::TestWithParam<SumInParts> {};

TEST_P(GpuSumsInParts, AgreeWithTheEvaluator) {
  XHAT_NEED_DEVICE(tested_gpu());
  expect_agreement(parse_op(GetParam().program), tested_gpu(), GetParam().dims);
}

const SumInParts kSumsInParts[] = {
    {"Columns", "op f(x: f32[N,C]) -> (y) { y[c] = sum(n: x[n,c]*x[n,c]) }", {{"N", 9001}, {"C", 3}}},
    {"AllOfARow", "op f(x: f32[N]) -> (y) { y = sum(i: cos(x[i])) }", {{"N", 70001}}},
    {"RowsOfFew", "op f(x: f32[N,K]) -> (y) { y[n] = tanh(mean(k: x[n,k])) }", {{"N", 3}, {"K", 20003}}},
    {"Images",
     "op f(x: f32[N,C,H,W]) -> (y) { m[c] = mean(n,h,w: x[n,c,h,w]); y[n,c,h,w] = (x[n,c,h,w]-m[c])^2 }",
     {{"N", 7}, {"C", 3}, {"H", 31}, {"W", 33}}},
    {"Product", "op f(x: f32[N,A], w: f32[N,B]) -> (y) { y[a,b] = sum(n: x[n,a]*w[n,b]) }", {{"N", 3001}, {"A", 20}, {"B", 37}}},
    {"ProductAndMap",
     "op f(x: f32[A,K], w: f32[K,B], b: f32[B]) -> (y) { y[i,j] = tanh(sum(k: x[i,k]*w[k,j])*0.02 + b[j]) }",
     {{"A", 33}, {"B", 49}, {"K", 2051}}},
    {"ProductUnderAMask",
     "op f(x: f32[A,K], w: f32[K,B], on: bool[K,B]) -> (y) { y[i,j] = sum(k if on[k,j]: x[i,k]*w[k,j]) }",
     {{"A", 33}, {"B", 49}, {"K", 67}}},
    {"ProductOfWhatIsGathered",
     "op f(x: f32[R,K], id: i32[A], w: f32[K,B], s: f32[B]) -> (y) { y[i,j] = sum(k: exp(x[id[i] % R,k])*(w[k,j] - s[j])) }",
     {{"A", 33}, {"B", 49}, {"K", 67}, {"R", 5}}},
    {"CausalProduct", "op f(x: f32[A,A], w: f32[A,B]) -> (y) { y[i,j] = sum(k in 0..i+1: x[i,k]*w[k,j]) }", {{"A", 53}, {"B", 49}}},
    {"HalvesTimesHalves",
     "op f(x: f16[A,K], w: bf16[K,B]) -> (y) { y[i,j] = sum(k: f32(x[i,k])*f32(w[k,j])) }",
     {{"A", 33}, {"B", 49}, {"K", 67}}},
    {"ProductOfDoubles", "op f(x: f64[A,K], w: f64[K,B]) -> (y) { y[i,j] = sum(k: x[i,k]*w[k,j]) }", {{"A", 33}, {"B", 49}, {"K", 67}}},
    {"LargestSum", "op f(x: f32[A,K], w: f32[K,B]) -> (y) { y[i,j] = max(k: x[i,k]+w[k,j]) }", {{"A", 33}, {"B", 49}, {"K", 67}}},
    {"Strided",
     "op f(x: f32[N,C,2*H+1], w: f32[K,C,3]) -> (y) { y[n,k,i in 0..H] = sum(c,r: x[n,c,2*i+r]*w[k,c,r]) }",
     {{"N", 3}, {"C", 19}, {"H", 21}, {"K", 18}}},
    {"TwoOfAProduct",
     "op f(x: f32[A,K], w: f32[K,B]) -> (y, z) { y[i,j] = sum(k: x[i,k]*w[k,j]); z[i,j] = sum(k: x[i,k]*sin(w[k,j])) }",
     {{"A", 33}, {"B", 49}, {"K", 1025}}},
    {"Convolution",
     "op f(x: f32[N,C,H,W], w: f32[K,C,3,3]) -> (y) { y[n,k,i in 0..H,j in 0..W] = sum(c,r,s: x[n,c,i+r-1,j+s-1 else 0]*w[k,c,r,s]) }",
     {{"N", 4}, {"C", 16}, {"H", 18}, {"W", 23}, {"K", 18}}},
    {"LargestOfMany", "op f(x: f32[N,C]) -> (y, best) { y[c] = max(n: x[n,c]); best[c] = argmin(n: x[n,c]) }", {{"N", 9001}, {"C", 3}}},
    {"Narrow", "op f(x: f16[N,C]) -> (y) { y[c] = sum(n: f32(x[n,c])); }", {{"N", 9001}, {"C", 3}}},
    {"NarrowResult", "op f(x: f32[N,C]) -> (y) { y[c] = f16(0.01*sum(n: x[n,c])) }", {{"N", 9001}, {"C", 3}}},
    {"Counts", "op f(x: f32[N,C]) -> (y) { y[c] = sum(n if x[n,c] > 0: 1) }", {{"N", 9001}, {"C", 3}}},
    {"AnyOfMany", "op f(x: f32[N,C]) -> (y) { y[c] = any(n: x[n,c] > 5) }", {{"N", 9001}, {"C", 3}}},
};
INSTANTIATE_TEST_SUITE_P(Sums, GpuSumsInParts, ::testing::ValuesIn(kSumsInParts), [](const auto& sum) { return sum.param.name; });

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
}  // namespace xhat::gpu_test
