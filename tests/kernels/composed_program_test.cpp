// Random programs of the second generator (tests/helpers/composed_program.h) through what `xhat check` does, each in one combination of
// policies, processor level and sizes. A failure prints the seed, the command for the tool and the reduced program;
// XHAT_PROPERTY_SEED=that seed XHAT_PROPERTY_COUNT=1 runs it alone.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <optional>

#include "ad/reverse/gradient.h"
#include "tests/helpers/composed_program.h"
#include "tests/helpers/need_device.h"
#include "tests/helpers/random_program.h"
#include "tests/helpers/runtime_check.h"

namespace xhat::composed_program_test {
namespace {

using namespace xhat::testing;

// Every kParts-th program, so that ctest can run the parts side by side.
constexpr int kParts = 4;

// About how many nodes an evaluator visits for the op and its gradients.
double visits(const Program& op, const DimValues& dims) {
  const Program p = gradient(op);
  const Arena& a = *p.arena;
  double largest = 1, all = 0;
  for (const auto& [name, value] : dims) largest = std::max(largest, static_cast<double>(value));
  auto extent = [&](const AxisRange& r) {
    return range_is_plain(a, r) ? static_cast<double>(evaluate_extent(a, r.end, dims)) : largest;
  };
  auto points = [&](const std::vector<AxisRange>& axes) {
    double n = 1;
    for (const AxisRange& r : axes) n *= extent(r);
    return n;
  };
  for (const Definition& d : p.definitions()) {
    if (d.is_call()) continue;
    std::map<Id, double, std::greater<>> of = {{d.body, points(d.axes)}};  // parents before children
    for (const auto& [id, times] : of) {
      all += times;
      const double below = is_reduction(a[id].op) ? times * points(reduce_axes(a[id])) : times;
      for (Id x : a[id].args()) of[x] = std::max(of[x], below);
    }
  }
  return all;
}

// Small sizes, odd ones, and among every ten one of 0, 1 or 2; as the op can have them. At most `most`.
DimValues dims_of(const Program& op, uint64_t seed, int64_t most) {
  constexpr int64_t kSizes[] = {3, 5, 17, 4, 9, 1, 2, 19, 6, 0};
  uint64_t bits = mixed(seed * 2 + 1);
  DimValues wanted;
  for (const Dim& d : op.dims) {
    if (d.definition == kNone) wanted[op.arena->name(d.dim)] = std::min(most, kSizes[bits % std::size(kSizes)]);
    bits /= std::size(kSizes);
  }
  try {
    return solve_dims(op, {}, sample_dims(op, seed, wanted));
  } catch (const Error&) {  // a precondition
    return solve_dims(op, {}, sample_dims(op, seed));
  }
}

// Sizes at which the evaluator, which is called some dozen times, takes well below a second: a product over N^2 factors for each of N^3
// results is N^7 visits of its gradient. None if no small sizes meet the op's preconditions.
std::optional<DimValues> dims_for(const Program& op, uint64_t seed) {
  constexpr double kMaxVisits = 2e6;
  std::optional<DimValues> dims;
  for (int64_t most : {19, 9, 5, 3}) {
    try {
      dims = dims_of(op, seed, most);
    } catch (const Error&) {
      return std::nullopt;
    }
    if (visits(op, *dims) <= kMaxVisits) break;
  }
  return dims;
}

std::string failure(const std::string& text, uint64_t seed, Target target, int& without_sizes) {
  Program op;
  try {
    op = parse_op(text);
  } catch (const std::exception& e) {
    return fmt::format("source: {}", e.what());
  }
  const std::optional<DimValues> dims = dims_for(op, seed);
  if (!dims) {
    ++without_sizes;
    return "";
  }
  for (CheckConfig& config : check_configs(seed, false)) {
    config.target = target;
    std::string f = check_failure(op, *dims, seed, config);
    if (!f.empty() && !f.starts_with(kNoData)) return f + "\n" + check_command("FILE", *dims, seed, config) + "\n";
  }
  return "";
}

std::string failing(int part, int parts, int count, Target target) {
  int refused = 0, programs = 0, without_sizes = 0;
  auto program = [&](uint64_t seed) {
    ComposedProgram p = composed_program(seed);
    refused += p.refused;
    ++programs;
    return p.text;
  };
  std::string report = failing_programs(part, parts, count, program, [&](const std::string& text, uint64_t seed) {
    return failure(text, seed, target, without_sizes);
  });
  std::cout << fmt::format("{} programs, {} of them without small sizes, {} more refused by the front end\n", programs, without_sizes, refused);
  EXPECT_LE(refused + without_sizes, programs) << "the generator writes too much that is not valid";
  return report;
}

class ComposedProgramTest : public ::testing::TestWithParam<int> {};

TEST_P(ComposedProgramTest, PassesWhatCheckCompares) {
  std::string report = failing(GetParam(), kParts, property_count(300, 20000), Target::cpu);
  EXPECT_TRUE(report.empty()) << report;
}
// A prefix each makes a suite each, and a suite is what ctest runs.
INSTANTIATE_TEST_SUITE_P(First, ComposedProgramTest, ::testing::Values(0));
INSTANTIATE_TEST_SUITE_P(Second, ComposedProgramTest, ::testing::Values(1));
INSTANTIATE_TEST_SUITE_P(Third, ComposedProgramTest, ::testing::Values(2));
INSTANTIATE_TEST_SUITE_P(Fourth, ComposedProgramTest, ::testing::Values(3));

TEST(GpuComposedProgramTest, PassesWhatCheckCompares) {
  XHAT_NEED_DEVICE(tested_gpu());
  std::string report = failing(0, 1, property_count(15, 2000), tested_gpu());
  EXPECT_TRUE(report.empty()) << report;
}

}  // namespace
}  // namespace xhat::composed_program_test
