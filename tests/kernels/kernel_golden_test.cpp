// Every golden program as CPU kernels against the evaluator; with zero-size dims too. The usual run takes policy `cost` for all of them and
// a sample for the rest, by the number of the file: the other policies, products with the derivatives, gradients of gradients. A long run
// (XHAT_TEST_LONG=1) takes all.
#include <gtest/gtest.h>

#include <algorithm>

#include "ad/check/random_inputs.h"
#include "ad/forward/jvp.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/random_program.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::kernel_golden_test {
namespace {

using namespace xhat::testing;
using Policy = StashOptions::Policy;

// f32 kernels against doubles, relative to the largest element: sums of a few hundred terms.
constexpr double kTolerance = 5e-5;

// Where f16 or bf16 are stored on the way; they round at 2^-11 and 2^-8.
constexpr double kNarrowTolerance = 1e-2;

double tolerance_of(const Program& p) {
  auto narrow = [](const Tensor& t) { return t.type == DType::f16 || t.type == DType::bf16; };
  return std::ranges::any_of(p.tensors, narrow) ? kNarrowTolerance : kTolerance;
}

class KernelGoldenTest : public ::testing::TestWithParam<GoldenFile> {
 protected:
  void SetUp() override {
    op = parse_op(GetParam().program);
    derived = gradient(op);
  }

  CompiledOp compiled(Policy policy, const DimValues& dims) const {
    CompileOptions options;
    options.stash.policy = policy;
    options.threads = 2;
    for (const std::string& name : free_dims(op)) options.dims[name] = dims.at(name);
    return compile(op, options);
  }

  void compare(Policy policy, const DimValues& dims, const Arrays& data) const {
    CompiledOp kernels = compiled(policy, dims);
    Arrays expected = evaluate_on(derived, data, dims);
    Arrays outputs = evaluate_on(op, data, dims);
    EXPECT_EQ(difference(outputs, run_infer(kernels, data, dims), tolerance_of(op)), "") << "infer";
    EXPECT_EQ(difference(expected, run_both(kernels, data, dims), tolerance_of(op)), "")
        << "forward and backward of\n" << print(kernels.program());
  }

  // Is this file one of every `of`, of which the `which`-th are taken?
  static bool sampled(size_t which, size_t of) {
    const auto paths = golden_paths();
    const auto number = static_cast<size_t>(std::ranges::find(paths, GetParam().path) - paths.begin());
    return long_run() || number % of == which;
  }

  Program op, derived;
};

TEST_P(KernelGoldenTest, AgreesWithTheEvaluator) {
  DimValues dims = sample_dims(op, 3);
  Arrays data = random_data(derived, dims, 5);
  for (Policy policy : {Policy::none, Policy::largest, Policy::cost}) {
    if (policy != Policy::cost && !sampled(policy == Policy::none ? 0 : 1, 3)) continue;
    SCOPED_TRACE("policy " + std::to_string(static_cast<int>(policy)));
    compare(policy, dims, data);
  }
}

// Each dim in turn is 0, as far as the op's preconditions allow it.
TEST_P(KernelGoldenTest, ZeroSizesWork) {
  DimValues dims = sample_dims(op, 3);
  for (const auto& [name, value] : dims) {
    DimValues zero;
    try {
      zero = sample_dims(op, 3, {{name, 0}});
      Arrays data = random_inputs(op, zero, 5, {.finite = false});
      data.merge(random_cotangents(derived, zero, 6));
      evaluate_on(derived, data, zero);  // argmax over nothing and indices into nothing are errors
      SCOPED_TRACE(name + " = 0");
      compare(Policy::cost, zero, data);
    } catch (const Error& e) {
      if (zero.empty() || e.message().find("argmax") != std::string::npos || e.message().find("index") != std::string::npos)
        continue;
      throw;
    }
  }
}

// Ops like any other: their kernels against the evaluator.
TEST_P(KernelGoldenTest, ProductsWithTheDerivativesAgree) {
  if (derived.gradients.empty() || !sampled(0, 2)) return;
  DimValues dims = sample_dims(op, 3);
  for (const Program& product : {jvp(op), hvp(op)}) {
    SCOPED_TRACE(print(product));
    Arrays data = random_data(derived, dims, 5);
    for (TensorId t : product.inputs)
      if (const Tensor& x = product.tensor(t); !data.contains(x.name))
        data[x.name] = random_normals(x.type, shape_of(product, t, dims), data.size());
    CompileOptions options;
    options.differentiate = false;
    options.threads = 2;
    for (const std::string& name : free_dims(product)) options.dims[name] = dims.at(name);
    EXPECT_EQ(difference(evaluate_on(product, data, dims), run_infer(compile(product, options), data, dims), tolerance_of(op)), "");
  }
}

// The second order by reverse mode: compile() takes a program with a backward for one op.
TEST_P(KernelGoldenTest, AGradientOfAGradientCompiles) {
  if (derived.gradients.empty() || !sampled(2, 3)) return;
  DimValues dims = sample_dims(op, 3);
  Program second = gradient(derived);
  Arrays data = random_data(derived, dims, 5);
  data.merge(random_cotangents(second, dims, 6));
  CompileOptions options;
  options.threads = 2;
  for (const std::string& name : free_dims(op)) options.dims[name] = dims.at(name);
  CompiledOp kernels = compile(derived, options);
  EXPECT_EQ(difference(evaluate_on(second, data, dims), run_both(kernels, data, dims), tolerance_of(op)), "")
      << print(kernels.program());
}

std::vector<GoldenFile> golden_files() {
  std::vector<GoldenFile> files;
  for (const auto& path : golden_paths()) files.push_back(read_golden(path));
  return files;
}

INSTANTIATE_TEST_SUITE_P(Files, KernelGoldenTest, ::testing::ValuesIn(golden_files()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace xhat::kernel_golden_test
