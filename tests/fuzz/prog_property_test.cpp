// Random imperative programs: what they are made into computes what the interpreter does that overwrites memory, and has the
// derivatives that finite differences measure. XHAT_PROPERTY_SEED and XHAT_PROPERTY_COUNT choose others.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "ad/check/gradcheck.h"
#include "expr/eval/interpret.h"
#include "tests/helpers/random_prog.h"
#include "tests/helpers/random_program.h"

namespace xhat::prog_property_test {
namespace {

uint64_t number_of(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

const DimValues kDims = {{"N", 4}, {"M", 3}};

void expect_same(const Arrays& got, const Arrays& wanted, const std::string& text) {
  for (const auto& [name, array] : wanted) {
    ASSERT_TRUE(got.contains(name)) << name << "\n" << text;
    ASSERT_EQ(got.at(name).shape, array.shape) << name << "\n" << text;
    for (size_t i = 0; i < array.size(); ++i) {
      const double x = got.at(name).at(i), y = array.at(i);
      if (x == y || (std::isnan(x) && std::isnan(y))) continue;
      ASSERT_NEAR(x, y, 1e-9 * (1 + std::fabs(y))) << name << " at " << i << "\n" << text;
    }
  }
}

void check(uint64_t seed) {
  const std::string text = testing::random_prog(seed);
  Program made;
  try {
    made = parse_op(text);
    verify(made);
  } catch (const std::exception& e) {
    if (std::string(e.what()).find("not yet") != std::string::npos) return;  // refused by name
    FAIL() << "seed " << seed << ": " << e.what() << "\n" << text;
  }
  const auto file = ast::parse(text);
  Arrays data = random_inputs(made, kDims, seed);
  data.at("k").integers[0] = static_cast<int64_t>(seed % 4);
  try {
    expect_same(evaluate(made, data, kDims, kExact), interpret(*file, file->ops[0], data, kDims), text);
    if (seed % 4 != 0 || ::testing::Test::HasFailure() || !all_finite(interpret(*file, file->ops[0], data, kDims))) return;
    const GradcheckReport report = gradcheck(made, data, kDims, {.seed = seed, .directions = 1, .elements = 4, .orders = 1});
    EXPECT_TRUE(report.passed) << "seed " << seed << "\n" << report.text() << text;
  } catch (const std::exception& e) {
    FAIL() << "seed " << seed << ": " << e.what() << "\n" << text;
  }
}

TEST(ProgProperty, FunctionalizedProgramsComputeWhatIsWritten) {
  const uint64_t first = number_of("XHAT_PROPERTY_SEED", 1), count = number_of("XHAT_PROPERTY_COUNT", testing::long_run() ? 10000 : 500);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    check(seed);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace xhat::prog_property_test
