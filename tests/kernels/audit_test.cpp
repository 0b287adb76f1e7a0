// The ops of tests/audit/*.xh, written as a user would write them, through what `xhat check` does. A line `# check: N=3,M=17
// seed=4` above an op says at which sizes and on which data; an op may have several, and those that have none are helpers. Each is
// checked in one combination of policies and processor level, or in a long run with all policies. A usual run takes a sample of
// fixed size (tests/helpers/audit_sample.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "ad/check/random_inputs.h"
#include "expr/eval/interpret.h"
#include "tests/helpers/audit_sample.h"
#include "tests/helpers/op_of_text.h"
#include "tests/helpers/random_program.h"
#include "tests/helpers/runtime_check.h"

namespace xhat::audit_test {
namespace {

using namespace xhat::testing;

// An imperative program, as what it was made into and by the interpreter that overwrites memory.
std::string difference_from_text(const std::string& text, const Program& made, const AuditCase& c, const DimValues& dims) {
  const auto file = ast::parse(text);
  for (const ast::Op& op : file->ops) {
    if (op.name != c.op || op.kind != ast::Op::Kind::prog) continue;
    const Arrays data = random_inputs(made, dims, c.seed);
    Arrays wanted = interpret(*file, op, data, dims), got = evaluate(made, data, dims, kExact);
    for (const ast::Parameter& p : op.body.parameters)
      if (p.inout) wanted.erase(p.name);  // delivered by another name
    for (auto it = got.begin(); it != got.end();) it = wanted.contains(it->first) ? std::next(it) : got.erase(it);
    return difference(wanted, got, 1e-9);
  }
  return "";
}

class AuditTest : public ::testing::TestWithParam<AuditCase> {};

TEST_P(AuditTest, PassesWhatCheckCompares) {
  const AuditCase& c = GetParam();
  std::ifstream in(c.file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  Program op = op_of_text(text, c.op);
  DimValues dims = solve_dims(op, {}, sample_dims(op, c.seed, c.dims));
  for (const auto& [dim, value] : c.dims) ASSERT_TRUE(dims.contains(dim)) << "the op has no dim " << dim;
  EXPECT_EQ(difference_from_text(text, op, c, dims), "");
  for (const CheckConfig& config : check_configs(std::hash<std::string>{}(c.name()), long_run()))
    EXPECT_EQ(check_failure(op, dims, c.seed, config), "") << check_command(c.file.string() + " --op " + c.op, c.dims, c.seed, config);
}

std::vector<AuditCase> tested_cases(size_t part) {
  constexpr size_t kParts = 4, kOfEach = 40;
  return audit_sample(audit_cases(part, kParts), kOfEach);
}
std::string name_of_case(const ::testing::TestParamInfo<AuditCase>& info) { return info.param.name(); }
// A prefix each makes a suite each, and a suite is what ctest runs.
INSTANTIATE_TEST_SUITE_P(First, AuditTest, ::testing::ValuesIn(tested_cases(0)), name_of_case);
INSTANTIATE_TEST_SUITE_P(Second, AuditTest, ::testing::ValuesIn(tested_cases(1)), name_of_case);
INSTANTIATE_TEST_SUITE_P(Third, AuditTest, ::testing::ValuesIn(tested_cases(2)), name_of_case);
INSTANTIATE_TEST_SUITE_P(Fourth, AuditTest, ::testing::ValuesIn(tested_cases(3)), name_of_case);

}  // namespace
}  // namespace xhat::audit_test
