// Which tests the usual run takes of the suites that compile kernels by the dozen: a share of each, others after each change of the engine's
// sources, the same on all machines. All of them in `./test --long` and with XHAT_TEST_AUDIT=all. What is asked for by name runs.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <string>
#include <string_view>

#include "tests/helpers/audit_sample.h"

namespace xhat::testing {
namespace {

struct Share {
  std::string_view tests;  // what their names begin with
  size_t percent;
};
// A suite that counts over all of its tests (TearDownTestSuite), or that keeps cases which were once wrong, runs whole and does not stand here.
constexpr Share kShares[] = {
    {"AheadCuda.", 25},
    {"AheadGpu.", 25},
    {"AheadOfManyKernels.", 25},
    {"Files/KernelGoldenTest.", 25},
    {"GivenSizesOfManyKernels.", 25},
    {"Golden/GpuLanguageTest.", 20},
    {"OpenSizesOfManyKernels.", 25},
    {"Ops/GpuOpsTest.", 20},
    {"Ops/LoweredCode.HasTheValues", 25},
    {"Ops/TvmKernelTest.", 25},
    {"Ops/WriteOver.", 25},
    {"Programs/TiledLoops.", 25},
    {"Programs/WholeLoops.", 25},
    {"RecurrencesOfKernels.", 25},
    {"Sums/GpuSumsInParts.", 20},
    {"TilesOfManyKernels.", 25},
};

bool left_out(const std::string& test, const std::string& sources) {
  for (const Share& s : kShares)
    if (test.starts_with(s.tests)) return std::hash<std::string>{}(sources + test) % 100 >= s.percent;
  return false;
}

// Adds the tests that are not in the sample to the filter's exceptions, unless the filter names single tests.
void take_sample() {
  std::string filter = GTEST_FLAG_GET(filter);
  if (takes_all() || filter.find('*') == std::string::npos) return;
  const std::string sources = fingerprint_of_sources();
  std::string out;
  const auto& all = *::testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const auto& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const std::string name = std::string(suite.name()) + "." + suite.GetTestInfo(t)->name();
      if (left_out(name, sources)) out += ":" + name;
    }
  }
  if (out.empty()) return;
  filter += filter.find('-') == std::string::npos ? "-" + out.substr(1) : out;
  GTEST_FLAG_SET(filter, filter);
  std::puts("of some suites a sample runs (tests/helpers/usual_run.cpp); all with XHAT_TEST_AUDIT=all");
}

}  // namespace
}  // namespace xhat::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (!GTEST_FLAG_GET(list_tests)) xhat::testing::take_sample();
  return RUN_ALL_TESTS();
}
