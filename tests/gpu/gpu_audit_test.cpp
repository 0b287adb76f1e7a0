// Ops of tests/audit on a GPU, on which AuditTest runs them on the CPU: kernels of both directions and of jvp and hvp against the evaluator.
// All of them in a long run, else a part, with those that were wrong when a GPU first ran them.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "tests/helpers/audit_cases.h"
#include "tests/helpers/need_device.h"
#include "tests/helpers/op_of_text.h"
#include "tests/helpers/random_program.h"
#include "tests/helpers/runtime_check.h"

namespace xhat::gpu_audit_test {
namespace {

using namespace xhat::testing;

class GpuAuditTest : public ::testing::TestWithParam<AuditCase> {};

TEST_P(GpuAuditTest, PassesWhatCheckCompares) {
  XHAT_NEED_DEVICE(tested_gpu());
  const AuditCase& c = GetParam();
  std::ifstream in(c.file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const Program op = op_of_text(text, c.op);
  const DimValues dims = solve_dims(op, {}, sample_dims(op, c.seed, c.dims));
  CheckConfig config;
  config.products = true;
  config.target = tested_gpu();
  EXPECT_EQ(check_failure(op, dims, c.seed, config), "") << check_command(c.file.string() + " --op " + c.op, c.dims, c.seed, config);
}

std::vector<AuditCase> tested_cases() {
  constexpr uint64_t kOneIn = 160;
  const std::set<std::string> once_wrong = {
      "all_pairs_with_condition_on_data",  // partial results of each tile of one batch, along another one
      "best_of_an_empty_plane",            // members that nobody reads, and launches that do nothing, where an extent is 0
      "max_columns",                       // numbered vectors of OpenCL C, an element of which is read
      "perona_malik",                      // gather, for the hvp, found no end
      "softcap_attention",                 // halves and floats in one shared memory
      "tie_lost_mirrored",                 // products of what is compared, contracted in one kernel and not in another
      "transposed_then_map",               // blocks that read what others make: tiles of an axis in phases
  };
  std::vector<AuditCase> all = audit_cases(0, 1);
  if (long_run()) return all;
  std::erase_if(all,
                [&](const AuditCase& c) { return !once_wrong.contains(c.op) && mixed(std::hash<std::string>{}(c.name())) % kOneIn != 0; });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ops, GpuAuditTest, ::testing::ValuesIn(tested_cases()), [](const ::testing::TestParamInfo<AuditCase>& c) {
  return c.param.name() + "_seed" + std::to_string(c.param.seed);
});

}  // namespace
}  // namespace xhat::gpu_audit_test
