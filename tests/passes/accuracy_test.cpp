// What the algebra makes of a gradient is no less accurate in f32 than the gradient as it was derived: on data far from 0
// (mean 1e4, deviation 1), where sums cancel.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "ad/check/random_inputs.h"
#include "ad/reverse/gradient.h"
#include "cse/stash/stash_planner.h"
#include "tests/helpers/cse_helper.h"
#include "tests/helpers/golden.h"

namespace xhat::accuracy_test {
namespace {

using namespace xhat::testing;

struct Case {
  std::string op;
  std::vector<std::string> far;  // inputs with a mean of 1e4
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.op; }

// Largest error of all gradients, each relative to the typical (rms) element of the exact one.
double worst_error(const Program& p, const Arrays& exact, const Arrays& got) {
  double worst = 0;
  for (TensorId t : p.gradients) {
    const Array &e = exact.at(p.tensor(t).name), &g = got.at(p.tensor(t).name);
    double squares = 0, error = 0;
    for (size_t i = 0; i < e.size(); ++i) {
      squares += e.reals[i] * e.reals[i];
      error = std::max(error, std::fabs(e.reals[i] - g.reals[i]));
    }
    worst = std::max(worst, error / std::sqrt(squares / static_cast<double>(e.size())));
  }
  return worst;
}

class AccuracyTest : public ::testing::TestWithParam<Case> {};

TEST_P(AccuracyTest, TheAlgebraLosesNoDigits) {
  Program raw = gradient(parse_op(plain_op(GetParam().op).text));
  Program planned = plan_stash(derived_op(GetParam().op)).program;
  double before = 0, after = 0;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    DimValues dims;
    for (const Dim& d : raw.dims) {
      const std::string& name = raw.arena->name(d.dim);
      dims[name] = name == "N" ? 8 : name == "D" ? 256 : 7;
    }
    Arrays data = xhat::testing::random_data(raw, dims, seed);
    data.merge(random_cotangents(raw, dims, seed));
    for (auto& [name, x] : data) {
      bool far = std::ranges::find(GetParam().far, name) != GetParam().far.end();
      if (far)
        for (double& v : x.reals) v += 1e4;
      x = rounded(std::move(x));
    }
    Arrays exact = evaluate_on(raw, data, dims);
    before = std::max(before, worst_error(raw, exact, evaluate_on(raw, data, dims, Rounding::declared)));
    after = std::max(after, worst_error(raw, exact, evaluate_on(planned, data, dims, Rounding::declared)));
  }
  RecordProperty("before", fmt::format("{:.1e}", before));
  RecordProperty("after", fmt::format("{:.1e}", after));
  std::cout << fmt::format("{}: as derived {:.1e}, after the algebra {:.1e}\n", GetParam().op, before, after);
  EXPECT_GT(before, 0);
  EXPECT_LE(after, 2 * before);
}
INSTANTIATE_TEST_SUITE_P(Ops, AccuracyTest,
                         ::testing::Values(Case{"batch_norm", {"x"}}, Case{"layer_norm", {"x"}}, Case{"rms_norm", {"x"}},
                                           Case{"softmax", {"x"}}, Case{"log_softmax", {"x"}}, Case{"cross_entropy", {"x"}}),
                         [](const auto& of) { return of.param.op; });

}  // namespace
}  // namespace xhat::accuracy_test
