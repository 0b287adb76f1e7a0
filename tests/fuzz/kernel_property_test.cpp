// Random programs as CPU kernels against the evaluator: infer, and forward with backward, under each stash policy in turn,
// a third of them with the classic fusion policy.
// XHAT_PROPERTY_SEED and XHAT_PROPERTY_COUNT as in property_test.cpp.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <array>

#include "ad/check/random_inputs.h"
#include "ad/forward/jvp.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/random_program.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::kernel_property_test {
namespace {

using namespace xhat::testing;
using Policy = StashOptions::Policy;

// f32 data in doubles against f32 kernels; programs amplify rounding by nested products and quotients.
constexpr double kTolerance = 2e-3;
constexpr double kTolerance64 = 1e-8;

RandomProgramOptions options_for(uint64_t seed) {
  return {.differentiable = true, .definitions = 3, .depth = 1 + static_cast<int>(seed % 3), .shielded = seed % 5 == 4};
}

// Literals are f32 even beside f64 data.
bool all_wide(const Program& op) {
  for (Id id = 0; id < op.arena->size(); ++id)
    if (DType t = (*op.arena)[id].type; is_float(t) && t != DType::f64) return false;
  return true;
}

// A condition on computed values that f32 decides otherwise than f64 is no error of the kernels: compared with the
// evaluator in f32 as well, what agrees with either is right.
std::string difference_from_both(const Arrays& exact, const Arrays& declared, const Arrays& got, double tolerance) {
  std::string a = difference(exact, got, tolerance);
  return a.empty() || difference(declared, got, tolerance).empty() ? "" : a;
}

// Every kParts-th program, so that ctest can run the parts side by side.
constexpr int kParts = 4;
#ifdef __SANITIZE_ADDRESS__
constexpr int kUsual = 100;  // whose kernels the released run has compiled
#else
constexpr int kUsual = 200;
#endif

// Products with the derivatives are ops like any other. data has the inputs and cotangents.
std::string product_failure(const Program& product, Arrays data, const DimValues& dims, CompileOptions options, double tolerance) {
  for (TensorId t : product.inputs)
    if (const Tensor& x = product.tensor(t); !data.contains(x.name))
      data[x.name] = random_normals(x.type, shape_of(product, t, dims), data.size());
  options.differentiate = false;
  Arrays exact = evaluate_on(product, data, dims), declared = evaluate_on(product, data, dims, Rounding::declared);
  CompiledOp kernels = compile(product, options);
  std::string d = difference_from_both(exact, declared, run_infer(kernels, data, dims), tolerance);
  return d.empty() ? "" : product.name + ": " + d + "\n" + print(product) + print(kernels.program());
}

std::string failure(const std::string& text, uint64_t seed) {
  Program op;
  try {
    op = parse_op(text);
  } catch (const std::exception& e) {
    return fmt::format("source: {}", e.what());
  }
  try {
    Program derived = gradient(op);
    DimValues dims = sample_dims(op, seed);
    Arrays data = testing::random_data(op, dims, seed);
    data.merge(random_cotangents(derived, dims, seed + 1));
    double tolerance = all_wide(op) ? kTolerance64 : kTolerance;
    Arrays exact = evaluate_on(derived, data, dims), declared = evaluate_on(derived, data, dims, Rounding::declared);
    CompileOptions options;
    options.stash.policy = std::array{Policy::none, Policy::largest, Policy::cost}[seed % 3];
    options.fusion.policy = seed / (3 * kParts) % 3 == 2 ? FusePolicy::relay : FusePolicy::full;
    options.threads = 1;
    for (const std::string& name : free_dims(op)) options.dims[name] = dims.at(name);
    CompiledOp kernels = compile(op, options);
    Arrays outputs = evaluate_on(op, data, dims), rounded = evaluate_on(op, data, dims, Rounding::declared);
    if (std::string d = difference_from_both(outputs, rounded, run_infer(kernels, data, dims), tolerance); !d.empty())
      return "infer: " + d + "\n" + print(kernels.program());
    if (std::string d = difference_from_both(exact, declared, run_both(kernels, data, dims), tolerance); !d.empty())
      return "backward: " + d + "\n" + print(kernels.program());
    uint64_t which = seed / kParts % 4;  // of every part's programs
    if (derived.gradients.empty() || which > 1) return "";
    return product_failure(which == 0 ? jvp(op) : hvp(op), data, dims, options, tolerance);
  } catch (const Error& e) {
    return fmt::format("error_{}: {}", failure_kind(e.what()), e.what());
  } catch (const std::exception& e) {
    return fmt::format("exception_{}: {}", failure_kind(e.what()), e.what());
  }
  return "";
}

class KernelPropertyTest : public ::testing::TestWithParam<int> {};

TEST_P(KernelPropertyTest, AgreesWithTheEvaluator) {
  auto program = [](uint64_t seed) { return random_program(seed, options_for(seed)); };
  std::string report = failing_programs(GetParam(), kParts, property_count(kUsual, 4000), program, failure);
  EXPECT_TRUE(report.empty()) << report;
}
// A prefix each makes a suite each, and a suite is what ctest runs.
INSTANTIATE_TEST_SUITE_P(First, KernelPropertyTest, ::testing::Values(0));
INSTANTIATE_TEST_SUITE_P(Second, KernelPropertyTest, ::testing::Values(1));
INSTANTIATE_TEST_SUITE_P(Third, KernelPropertyTest, ::testing::Values(2));
INSTANTIATE_TEST_SUITE_P(Fourth, KernelPropertyTest, ::testing::Values(3));

}  // namespace
}  // namespace xhat::kernel_property_test
