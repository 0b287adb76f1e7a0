// What `explain` says is what runs: the same stash, in bytes, and the same kernels, for every op of bench/stash_ops at three sizes
// each; what calls at changing sizes keep, and what a budget does to them.
#include <gtest/gtest.h>

#include <set>

#include "ad/reverse/gradient.h"
#include "runtime/ahead/build/ahead_stash.h"
#include "runtime/call/machine.h"
#include "runtime/explain/explain.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"
#include "tests/helpers/tool_helper.h"

namespace xhat::explained_stash_test {
namespace {

using namespace xhat::testing;
using Phase = CompiledOp::Phase;

const fs::path kOps = fs::path(XHAT_SOURCE_DIR) / "bench" / "stash_ops";

struct Case {
  std::string name;
  std::vector<DimValues> sizes;  // the table's, and two others
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Json& entry : Json::parse(content(kOps / "ops.json"))) {
    const DimValues dims = entry["dims"];
    DimValues small = dims, large = dims;
    int64_t step = 0;
    for (auto& [name, size] : small) size = 2 + step++ % 3;  // dims that are equal in the table are not, here
    for (auto& [name, size] : large) size = size == 1024 ? 300 : 5 * size;
    all.push_back({entry["op"], {dims, small, large}});
  }
  return all;
}

// As `xhat explain` counts kernels: a sweep of several is one.
std::vector<std::string> kernels_of(const KernelPlan& plan) {
  std::vector<std::string> names;
  for (const Kernel& k : plan.kernels) {
    if (k.horizontal) names.back() += "_" + k.name;
    else names.push_back(k.epilogue ? k.name + "_finish" : k.name);
    if (k.combines_partials) names.push_back(k.name + "_finish");
  }
  return names;
}

std::vector<std::string> kernels_of(const ExplainedDirection& d) {
  std::vector<std::string> names;
  for (const ExplainedKernel& k : d.kernels) names.push_back(k.name);
  return names;
}

class ExplainedPlan : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(StashOps, ExplainedPlan, ::testing::ValuesIn(cases()), [](const auto& p) { return p.param.name; });

TEST_P(ExplainedPlan, IsThePlanThatRuns) {
  const Program op = parse_op(content(kOps / (GetParam().name + ".xh")));
  const CompiledOp compiled = compile(op);
  CompileOptions here;
  here.machine = for_this_machine(here.machine);
  for (const DimValues& sizes : GetParam().sizes) {
    SCOPED_TRACE(dims_text(sizes));
    const Explanation e = explain(op, here, sizes);
    const Program& p = compiled.program(e.sizes);
    int64_t bytes = 0;
    std::vector<std::string> stash, told;
    for (TensorId t : stashes(p)) {
      bytes += TensorView(nullptr, p.tensors[t].type, shape_of(p, t, e.sizes), {}).bytes();
      stash.push_back(p.tensors[t].name);
    }
    for (const ExplainedStash& s : e.stash) told.push_back(s.name);
    EXPECT_EQ(stash, told);
    EXPECT_EQ(bytes, e.stash_bytes());
    EXPECT_EQ(compiled.kept(e.sizes), e.kept_by_caller);
    const std::pair<Phase, const ExplainedDirection*> directions[] = {
        {Phase::infer, &e.infer}, {Phase::forward, &e.forward}, {Phase::backward, &e.backward}};
    for (auto [phase, explained] : directions) {
      const KernelPlan plan = compiled.plan(phase, e.sizes);
      EXPECT_EQ(kernels_of(plan), kernels_of(*explained));
      EXPECT_EQ(plan.bytes_moved, explained->bytes_moved);
    }
  }
}

// The program itself, of which a budget and two sizes make three different stashes.
TEST_F(Tool, BenchKeepsWhatExplainSays) {
  const std::string op = (kOps / "matmul_batch_norm.xh").string();
  int64_t least = INT64_MAX;
  for (const char* more : {"--dims N=16,K=8,D=8", "--dims N=512,K=4,D=16", "--dims N=512,K=4,D=16 --stash budget=200"}) {
    const Json explained = json("explain " + op + " --json " + more), bench = json("bench " + op + " --json --repeats 1 " + more);
    EXPECT_EQ(bench["stash_bytes"], explained["stash_bytes"]) << more;
    least = std::min(least, bench["stash_bytes"].get<int64_t>());
  }
  EXPECT_LE(least, 200);  // else no budget was put to the test
  // x is needed, and gone.
  const std::string without_x = (kOps / "logsumexp.xh").string() + " --json --dims N=8,D=4 --drop x --stash budget=100";
  for (const std::string command : {"explain ", "bench --repeats 1 "}) {
    const Result refused = call(command + without_x);
    EXPECT_EQ(refused.status, 2);
    EXPECT_NE(refused.err.find("the smallest takes 160"), std::string::npos) << refused.err;
  }
}

// One op, one stash object, sizes that change from call to call and back: what is kept changes with them, and gradients are right.
TEST(StashSizesCall, SizesMayChangeFromCallToCall) {
  const Program op = parse_op(content(kOps / "matmul_batch_norm.xh")), all = gradient(op);
  const CompiledOp compiled = compile(op);
  std::set<std::vector<std::string>> kept;
  for (const DimValues& sizes : std::vector<DimValues>{{{"N", 3000}, {"D", 2}, {"K", 3}},
                                                       {{"N", 7}, {"D", 70}, {"K", 40}},
                                                       {{"N", 3000}, {"D", 2}, {"K", 3}},
                                                       {{"N", 3001}, {"D", 2}, {"K", 3}}}) {
    Arrays data = random_data(all, sizes, 5);
    EXPECT_EQ(difference(evaluate_on(all, data, sizes), run_both(compiled, data, sizes), 2e-3), "") << dims_text(sizes);
    std::vector<std::string> names;
    const Program& p = compiled.program(sizes);
    for (TensorId t : stashes(p)) names.push_back(p.tensors[t].name);
    kept.insert(names);
  }
  EXPECT_GT(kept.size(), 1u);
}

// A library has one stash for all its sizes: chosen for the largest that are given, 64 of the open dim, or what nominal sizes say.
TEST(StashSizesAhead, OneChoiceForAllSizes) {
  const Program op = parse_op(content(kOps / "matmul_batch_norm.xh"));
  AheadOptions options;
  options.sizes = {{"K", {16, 2}}, {"D", {2}}};
  const Derivation open = runtime::derive_ahead(op, options);
  EXPECT_EQ(print(open.program), print(derive(op, {}, {{"N", 64}, {"K", 16}, {"D", 2}}).program));
  EXPECT_EQ(runtime::stash_sizes_text(open, options), "D = 2, K = 16, N = 64");
  options.compile.stash.nominal = {{"N", 4096}};
  const Derivation large = runtime::derive_ahead(op, options);
  EXPECT_EQ(print(large.program), print(derive(op, {}, {{"N", 4096}, {"K", 16}, {"D", 2}}).program));
  EXPECT_EQ(runtime::stash_sizes_text(large, options), "D = 2, K = 16, N = 4096");
}

TEST(StashSizesAhead, ABudgetHoldsAtAllSizesOrIsRefused) {
  AheadOptions options;
  options.compile.stash.policy = StashOptions::Policy::budget;
  auto refusal = [&](const char* text) -> std::string {
    try {
      runtime::derive_ahead(parse_op(text), options);
      return "";
    } catch (const Error& e) {
      return e.message();
    }
  };
  const char* const rows = "op f(x: f32[N,C]) -> (y) { m[n] = max(c: x[n,c]); y[n,c] = exp(x[n,c] - m[n]) * sin(x[n,c]) }";
  const char* const columns = "op f(x: f32[N,C]) -> (y) { m[c] = max(n: x[n,c]); y[n,c] = exp(x[n,c] - m[c]) * sin(x[n,c]) }";
  options.sizes = {{"C", {8, 32}}};
  options.compile.stash.budget = 1000;
  EXPECT_NE(refusal(rows).find("grows with the size that stays open"), std::string::npos) << refusal(rows);
  EXPECT_EQ(refusal(columns), "");
  options.compile.stash.budget = 100;
  EXPECT_NE(refusal(columns).find("the smallest takes 128"), std::string::npos) << refusal(columns);
}

}  // namespace
}  // namespace xhat::explained_stash_test
