// Every file below tests/golden: the text that its passes give, and that text, values and gradients hold together.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>

#include "ad/check/gradcheck.h"
#include "ad/reverse/gradient.h"
#include "tests/helpers/golden.h"

namespace xhat::golden_test {
namespace {

using namespace xhat::testing;

constexpr double kTolerance = 1e-9;  // of evaluation in f64: passes may reorder sums
// Second derivatives of ops above this many scalar nodes take seconds to check.
constexpr size_t kLargestForSecondOrder = 120;

bool updating() {
  const char* text = std::getenv("XHAT_UPDATE_GOLDEN");
  return text && std::string(text) == "1";
}

size_t node_count(const Program& p) {
  std::vector<Id> roots;
  for (const Definition& d : p.definitions())
    if (!d.is_call()) roots.push_back(d.body);
  return reachable(*p.arena, roots).size();
}

std::vector<GoldenFile> golden_files() {
  std::vector<GoldenFile> files;
  for (const auto& path : golden_paths()) files.push_back(read_golden(path));
  return files;
}

class GoldenTest : public ::testing::TestWithParam<GoldenFile> {};

TEST_P(GoldenTest, TextIsAsExpected) {
  GoldenFile file = GetParam();
  Program op = parse_op(file.program);
  ASSERT_FALSE(file.sections.empty()) << file.path << " has no section; write ==> grad, then run with XHAT_UPDATE_GOLDEN=1";
  for (GoldenSection& section : file.sections) {
    std::string text = print(run_passes(op, section.passes));
    EXPECT_EQ(print(run_passes(parse_op(file.program), section.passes)), text) << "another run gives another text";
    if (updating()) {
      section.expected = text;
      continue;
    }
    ASSERT_FALSE(section.expected.empty()) << file.path << " expects nothing of " << section.passes;
    EXPECT_EQ(section.expected, text) << file.path << "\n==> " << section.passes;
  }
  if (updating()) std::ofstream(file.path) << file.text();
}

TEST_P(GoldenTest, TextReadsBack) {
  Program op = parse_op(GetParam().program);
  EXPECT_TRUE(equal(parse_op(print(op)), op)) << print(op);
  EXPECT_EQ(print(parse_op(print(op))), print(op));
  for (const GoldenSection& section : GetParam().sections)
    run_passes(op, section.passes, [&](const std::string& pass, const Program& p) {
      EXPECT_TRUE(equal(parse_op(print(p)), p)) << "after " << pass << " of " << section.passes << "\n" << print(p);
    });
}

TEST_P(GoldenTest, PassesKeepValues) {
  Program op = parse_op(GetParam().program);
  Program derived = gradient(op);
  DimValues dims = sample_dims(op, 3);
  Arrays data = random_data(derived, dims, 5);
  Arrays forward = evaluate_on(op, data, dims);
  Arrays all = evaluate_on(derived, data, dims);
  EXPECT_EQ(difference(forward, all, kTolerance), "");
  for (const GoldenSection& section : GetParam().sections)
    run_passes(op, section.passes, [&](const std::string& pass, const Program& p) {
      for (TensorId t : p.inputs)  // tangents
        if (const Tensor& x = p.tensor(t); !data.contains(x.name))
          data[x.name] = random_normals(x.type, shape_of(p, t, dims), data.size());
      Arrays got = evaluate_on(p, data, dims);
      if (pass.starts_with("jvp") || pass.starts_with("hvp")) all.insert(got.begin(), got.end());
      bool has_outputs = p.name != op.name + "_hvp";
      if (has_outputs) {
        EXPECT_EQ(difference(forward, got, kTolerance), "") << "after " << pass << " of " << section.passes << "\n" << print(p);
      }
      EXPECT_EQ(difference(got, all, kTolerance), "") << "after " << pass << " of " << section.passes << "\n" << print(p);
    });
}

TEST_P(GoldenTest, GradientsAreDerivatives) {
  Program op = parse_op(GetParam().program);
  Program first = gradient(op);
  if (first.gradients.empty()) return;  // integers only
  DimValues dims = sample_dims(op, 3);
  GradcheckOptions options;
  options.elements = 8;
  options.directions = 1;
  GradcheckReport report = gradcheck(op, dims, options);  // both modes, the second order forward over reverse
  EXPECT_TRUE(report.passed) << report.text();
  if (node_count(first) > kLargestForSecondOrder) return;
  options.elements = 4;
  report = check_gradient(gradient(first), smallest_dims(op), options);
  EXPECT_TRUE(report.passed) << "second order\n" << report.text();
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenTest, ::testing::ValuesIn(golden_files()),
                         [](const auto& instance) { return instance.param.name; });

TEST(GoldenRunnerTest, UnknownPassesAreErrors) {
  Program op = parse_op("op f(x: f32[N]) -> (y) { y[n] = x[n] }");
  EXPECT_THROW(run_passes(op, "grad, no_such_pass"), Error);
  EXPECT_THROW(run_passes(op, "grad, , inline"), Error);
}

TEST(GoldenRunnerTest, DifferencesAreSeen) {
  Arrays x = {{"y", array_of(DType::f64, {2}, {1, 2})}};
  Arrays near = {{"y", array_of(DType::f64, {2}, {1, 2 + 1e-12})}};
  Arrays far = {{"y", array_of(DType::f64, {2}, {1, 2.001})}};
  Arrays nan = {{"y", array_of(DType::f64, {2}, {1, std::nan("")})}};
  EXPECT_EQ(difference(x, near, 1e-9), "");
  EXPECT_EQ(difference(x, far, 1e-9), "y at [1] is 2.001 instead of 2");
  EXPECT_NE(difference(x, nan, 1e-9), "");
  EXPECT_NE(difference(nan, x, 1e-9), "");
  EXPECT_EQ(difference(nan, nan, 1e-9), "");
  EXPECT_EQ(difference(x, {}, 1e-9), "y is missing");
}

}  // namespace
}  // namespace xhat::golden_test
