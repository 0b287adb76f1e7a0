// The cases of relax's gradient checkpoints (TVM, tests/python/relax/test_transform_gradient_checkpoint.py): there the user
// marks regions, whose inside the backward computes again from what enters them. Here the planner chooses; no case may cost
// it more bytes than the marks do. Tensors are 3x3, f32: 36 bytes each.
#include <gtest/gtest.h>


#include "ad/check/gradcheck.h"
#include "ad/gather/gather.h"
#include "ad/reverse/gradient.h"
#include "cse/normalize/auto_inliner.h"
#include "cse/stash/stash_planner.h"
#include "tests/helpers/cse_helper.h"

namespace xhat::testing::checkpoint_test {
namespace {

using Policy = StashOptions::Policy;

constexpr int64_t kTensor = 36;

struct Checkpoint {
  std::string name;
  std::string text;                 // p(e): power by 3 there
  std::vector<std::string> wrt;     // none: all
  std::vector<std::string> kept;    // theirs, beyond the inputs
  std::vector<std::string> again;   // theirs, computed again in the backward
  int64_t alone;                    // ours: tensors kept if nothing stays with the caller, inputs neither
};
void PrintTo(const Checkpoint& c, std::ostream* out) { *out << c.name; }

const char* const kTree = R"(op f(x: f32[3,3], y: f32[3,3], z: f32[3,3], u: f32[3,3], v: f32[3,3]) -> (gv) {
  lv1[i,j] = x[i,j] * y[i,j]
  lv2[i,j] = lv1[i,j] * z[i,j]
  lv3[i,j] = u[i,j] * v[i,j]
  lv4[i,j] = lv2[i,j] * lv3[i,j]
  gv = sum(i, j: lv4[i,j])
})";

const char* const kChain = R"(op f(x: f32[3,3]) -> (gv) {
  lv1[i,j] = p(x[i,j])
  lv2[i,j] = p(lv1[i,j])
  lv3[i,j] = p(lv2[i,j])
  lv4[i,j] = p(lv3[i,j])
  gv = sum(i, j: lv4[i,j])
})";

const std::vector<Checkpoint>& checkpoints() {
  static const std::vector<Checkpoint> all = {
      {"sequential", kChain, {}, {"lv2"}, {"lv3", "lv1"}, 1},   // x -> [lv1] -> lv2 -> [lv3, lv4, gv]
      {"consecutive", kChain, {}, {"lv2"}, {"lv3", "lv1"}, 1},  // x -> [lv1, lv2] -> [lv3, lv4] -> gv
      // (x, lv1)[0] is x: they compute lv1 again, for a gradient that is zero.
      {"tuple", "op f(x: f32[3,3]) -> (gv) {\n  lv1[i,j] = p(x[i,j])\n  lv4[i,j] = p(x[i,j])\n  gv = sum(i, j: lv4[i,j])\n}",
       {}, {}, {"lv1"}, 1},
      {"tree", kTree, {}, {"lv1"}, {"lv2", "lv3"}, 5},
      {"tree_of_z", kTree, {"z"}, {"lv1"}, {"lv3"}, 4},  // x, y, u, v; lv1, u, v would do
      // Three blocks [* 2 * 2], each multiplied with what enters it; block order last first.
      {"dag", R"(op f(x: f32[3,3]) -> (gv) {
  lv1[i,j] = x[i,j] * 2
  lv2[i,j] = lv1[i,j] * 2
  lv3[i,j] = x[i,j] * lv2[i,j]
  lv4[i,j] = lv3[i,j] * 2
  lv5[i,j] = lv4[i,j] * 2
  lv6[i,j] = lv3[i,j] * lv5[i,j]
  lv7[i,j] = lv6[i,j] * 2
  lv8[i,j] = lv7[i,j] * 2
  lv9[i,j] = lv6[i,j] * lv8[i,j]
  gv = sum(i, j: lv9[i,j])
})", {}, {"lv3", "lv6"}, {"lv7", "lv8", "lv4", "lv5", "lv1", "lv2"}, 1},
  };
  return all;
}

Program derived_with(const Checkpoint& c, const std::string& p) {
  std::string text;
  for (size_t from = 0, at = 0;; from = at) {
    at = c.text.find(" p(", from);
    text += c.text.substr(from, at == std::string::npos ? at : at - from);
    if (at == std::string::npos) break;
    size_t end = c.text.find(')', at);
    std::string value = p, argument = c.text.substr(at + 3, end - at - 3);
    for (size_t x; (x = value.find("$1")) != std::string::npos;) value.replace(x, 2, argument);
    text += " " + value;
    at = end + 1;
  }
  return inline_injective(gather(gradient(parse_op(text), {c.wrt})));
}

// Where everything stays: the values are those of the op, and its gradient that of finite differences.
void expect_right(const Program& before, const Program& planned) {
  verify(planned);
  expect_same_values(before, planned);
  GradcheckReport report = check_gradient(planned, {});
  EXPECT_TRUE(report.passed) << report.text() << print(planned);
}

class Checkpoints : public ::testing::TestWithParam<Checkpoint> {};

TEST_P(Checkpoints, NoMoreBytesThanWithMarks) {
  const Checkpoint& c = GetParam();
  Program before = derived_with(c, "$1^3");
  StashOptions options;
  options.budget = kTensor * static_cast<int64_t>(c.kept.size());
  for (Policy policy : {Policy::none, Policy::largest, Policy::cost, Policy::budget}) {
    SCOPED_TRACE("policy " + std::to_string(static_cast<int>(policy)));
    options.policy = policy;
    StashPlan plan = plan_stash(before, options);
    EXPECT_LE(plan.stash_bytes, options.budget) << print(plan.program);
    expect_right(before, plan.program);
    // The names are seen through: nothing of a region is left to be computed again.
    for (const std::string& name : c.again) EXPECT_EQ(print(plan.program).find(name + "["), std::string::npos);
  }
}

TEST_P(Checkpoints, NothingStaysWithTheCaller) {
  const Checkpoint& c = GetParam();
  Program before = derived_with(c, "$1^3");
  StashOptions options;
  options.kept_by_caller.emplace();
  StashPlan plan = plan_stash(before, options);
  EXPECT_EQ(plan.stash_bytes, kTensor * c.alone) << print(plan.program);
  EXPECT_TRUE(plan.optimal);
  expect_right(before, plan.program);
}

INSTANTIATE_TEST_SUITE_P(Relax, Checkpoints, ::testing::ValuesIn(checkpoints()),
                         [](const auto& instance) { return instance.param.name; });

// With sin in place of the power there is nothing to see through: for the bytes of their one tensor, as much work again.
TEST(CheckpointsOfSin, AsManyEvaluationsForAsManyBytes) {
  for (const Checkpoint& c : checkpoints()) {
    if (c.text != kChain) continue;
    Program before = derived_with(c, "sin($1)");
    StashOptions options;
    options.policy = Policy::budget;
    options.budget = kTensor * static_cast<int64_t>(c.kept.size());
    StashPlan plan = plan_stash(before, options);
    EXPECT_EQ(plan.stash_bytes, options.budget);
    EXPECT_EQ(backward_nodes(plan.program, Op::sin), static_cast<int>(c.again.size())) << print(plan.program);
    expect_right(before, plan.program);
    options.budget = 0;
    plan = plan_stash(before, options);
    EXPECT_EQ(backward_nodes(plan.program, Op::sin), 3) << print(plan.program);
    expect_right(before, plan.program);
    options.policy = Policy::largest;
    EXPECT_EQ(backward_nodes(plan_stash(before, options).program, Op::sin), 0);
  }
}

}  // namespace
}  // namespace xhat::testing::checkpoint_test
