// What README.md, docs/passes.md, docs/softmax.md and docs/relations.md show as output is what the engine gives. (The language in them: docs_test.cpp.)
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <sstream>

#include "expr/core/watch.h"
#include "fusion/plan/plan_text.h"
#include "runtime/explain/explain.h"
#include "runtime/explain/explain_relations.h"
#include "runtime/kernel/spec_text.h"
#include "tests/helpers/pages.h"

namespace xhat::docs_output_test {
namespace {

namespace fs = std::filesystem;

using testing::kRoot;
using testing::read;

// The first block with this fence after `mark`.
std::string block_after(const std::string& page, const std::string& mark, const std::string& fence) {
  size_t at = page.find(mark);
  at = at == std::string::npos ? at : page.find("\n```" + fence + "\n", at);
  if (at == std::string::npos) return "";
  size_t begin = at + fence.size() + 5;
  return page.substr(begin, page.find("\n```", begin) + 1 - begin);
}

TEST(DocsOutputTest, TheReadmeShowsWhatExplainSays) {
  std::string command = "explain examples/batch_norm.xh --dims N=32,C=64,H=56,W=56";
  std::string shown = block_after(read(kRoot / "README.md"), command, "text");
  ASSERT_FALSE(shown.empty()) << "README.md lacks '" << command << "', or a block after it";
  Program op = parse_op(read(kRoot / "examples" / "batch_norm.xh"));
  std::string said = to_text(explain(op, {}, {{"N", 32}, {"C", 64}, {"H", 56}, {"W", 56}}));
  std::istringstream lines(shown);
  for (std::string line; std::getline(lines, line);)
    EXPECT_NE(("\n" + said).find("\n" + line + "\n"), std::string::npos) << "explain does not say\n" << line;
}

TEST(DocsOutputTest, RelationsShowsWhatExplainSays) {
  const std::string page = read(kRoot / "docs" / "relations.md");
  auto expect_lines = [&](const std::string& mark, const ExplainedRelations& said) {
    const std::string shown = block_after(page, mark, "text"), text = to_text(said);
    ASSERT_FALSE(shown.empty()) << mark;
    EXPECT_NE(("\n" + text).find("\n" + shown), std::string::npos) << text;
  };
  expect_lines("explain chained.xh --relations", explain_relations(parse_op(block_after(page, "Two products", "xh"))));
  expect_lines("explain two_convolutions.xh --relations",
               explain_relations(parse_op(block_after(page, "show their halo", "xh")), {}, {{"N", 260}}));
}

TEST(DocsOutputTest, PassesShowsWhatEachStepGives) {
  std::string page = read(kRoot / "docs" / "passes.md");
  Derivation softmax = derive(parse_op(read(kRoot / "examples" / "softmax.xh")));
  CompileOptions relay;
  relay.fusion.policy = FusePolicy::relay;
  Derivation ops = derive(parse_op(read(kRoot / "examples" / "softmax.xh")), relay);
  const PassStep& written = ops.steps.at(ops.steps.size() - 2);
  EXPECT_EQ(written.name, "ops");
  EXPECT_EQ(block_after(page, "\n## ops\n", "xh"), print(written.program));
  Derivation shrink = derive(parse_op("op shrink(x: f32[N], w: f32[3]) -> (y) { y[i in 0..(N+1)/2] = sum(r: x[2*i+r-1 else 0] * w[r]) }"));
  for (const PassStep& step : softmax.steps) {
    EXPECT_NE(page.find("\n## " + step.name + "\n"), std::string::npos) << "no section on " << step.name;
    if (step.name == "gather" || step.name == "simplify" || step.name == "tidy") continue;  // other ops; nothing shown
    EXPECT_EQ(block_after(page, "\n## " + step.name + "\n", "xh"), print(step.program)) << step.name;
  }
  ASSERT_EQ(shrink.steps[2].name, "gather");
  EXPECT_EQ(block_after(page, "\n## gather\n", "xh"), print(shrink.steps[2].program));
  Derivation edge = derive(parse_op(block_after(page, "\n## simplify\n", "xh")));
  ASSERT_EQ(edge.steps[4].name, "simplify");
  EXPECT_EQ(block_after(page, "after this step:", "xh"), print(edge.steps[4].program));
}

TEST(DocsOutputTest, SoftmaxShowsEveryStep) {
  const std::string page = read(kRoot / "docs" / "softmax.md");
  const Program op = parse_op(read(kRoot / "examples" / "softmax.xh"));
  const DimValues sizes = {{"N", 256}, {"D", 1024}};
  std::map<std::string, std::string> inner;  // steps of the stash planner
  Derivation derived;
  {
    WatchSteps watch([&](const std::string& step, const Program& after) { inner.emplace(step, print(after)); });
    derived = derive(op, {}, sizes);
  }
  EXPECT_EQ(block_after(page, "`softmax.0.grad.xh`", "xh"), print(derived.steps.at(0).program));
  EXPECT_EQ(block_after(page, "`softmax.3.inline.xh`", "xh"), print(derived.steps.at(3).program));
  EXPECT_EQ(block_after(page, "`softmax.5.2.reduction_algebra.xh`", "xh"), inner.at("reduction_algebra"));
  EXPECT_EQ(block_after(page, "`softmax.5.3.shared.xh`", "xh"), inner.at("shared"));
  EXPECT_EQ(inner.at("shared"), print(derived.steps.at(7).program)) << "the page says that nothing changes after that";
  for (const auto& [direction, text] :
       {std::pair(forward_program(derived.program), "`softmax_forward"), {backward_program(derived.program), "`softmax_backward"}}) {
    const KernelPlan plan = plan_kernels(direction, sizes);
    EXPECT_EQ(block_after(page, std::string(text) + ".plan.txt`", "text"), to_text(direction, plan));
    if (std::string(text) != "`softmax_forward") continue;
    const auto spec = runtime::make_spec(direction, plan.kernels.at(0), sizes, std::vector<bool>(direction.tensors.size(), true));
    EXPECT_EQ(block_after(page, "`softmax_forward.0.y.spec.txt`", "text"), runtime::to_text(spec));
  }
}

}  // namespace
}  // namespace xhat::docs_output_test
