// The classic policy: known numbers, its options, what explain shows of it, and what its forward keeps.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "ad/reverse/gradient.h"
#include "fusion/relay/relay_kernels.h"
#include "runtime/explain/explain.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/relay_helper.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::relay_policy_test {
namespace {

using namespace xhat::testing;

// N4: E = (A B^T) D^T on known numbers, in one kernel with a row of C (the default policy) and in two.
TEST(RelayPolicy, ChainedProductsOnKnownNumbers) {
  Program op = parse_op(R"(op chained(A: f32[8,8], B: f32[8,8], D: f32[8,8]) -> (E) {
    C[i,j] = sum(k: A[i,k] * B[j,k])
    E[i,j] = sum(k: C[i,k] * D[j,k])
  })");
  auto matrix = [](auto f) {
    Array a = zeros(DType::f32, {8, 8});
    for (int i = 0; i < 8; ++i)
      for (int k = 0; k < 8; ++k) a.reals[static_cast<size_t>(8 * i + k)] = f(i, k);
    return a;
  };
  Arrays plain = {{"A", matrix([](int i, int) { return i + 1; })},
                  {"B", matrix([](int j, int) { return j + 1; })},
                  {"D", matrix([](int, int) { return 1; })}};
  Arrays mixed = {{"A", matrix([](int i, int k) { return i + k; })},
                  {"B", matrix([](int j, int k) { return (j * k) % 5; })},
                  {"D", matrix([](int j, int k) { return j - k; })}};
  for (FusePolicy policy : {FusePolicy::full, FusePolicy::relay}) {
    CompileOptions options;
    options.fusion.policy = policy;
    CompiledOp kernels = compile(op, options);
    const KernelPlan plan = kernels.plan(CompiledOp::Phase::infer, {});
    EXPECT_EQ(plan.kernels.size(), policy == FusePolicy::full ? 1u : 2u);
    EXPECT_EQ(plan.flops, 2048) << "nothing is computed twice";
    Array e = run_infer(kernels, plain, {}).at("E");
    for (size_t i = 0; i < 64; ++i) EXPECT_EQ(e.reals[i], 288.0 * static_cast<double>(i / 8 + 1));
    e = run_infer(kernels, mixed, {}).at("E");
    EXPECT_EQ((std::vector<double>(e.reals.begin(), e.reals.begin() + 4)), (std::vector<double>{-1345, -1000, -655, -310}));
    EXPECT_EQ(e.reals[63], 3016);
    double sum = 0;
    for (double x : e.reals) sum += x;
    EXPECT_EQ(sum, -16304);
  }
}

TEST(RelayPolicy, LevelsAndLimitsAreOptions) {
  Program op = parse_op(kChainOfPoolings);
  auto count = [&](const fusion::RelayOptions& limits) {
    CompileOptions options = relay();
    options.fusion.relay = limits;
    CompiledOp kernels = compile(op, options);
    DimValues dims = {{"M", 3}};
    Arrays data = data_for(gradient(op), dims);
    EXPECT_EQ(difference(evaluate_on(op, data, dims), run_infer(kernels, data, dims), 2e-4), "");
    return kernels.plan(CompiledOp::Phase::infer, dims).kernels.size();
  };
  EXPECT_EQ(count({.opt_level = 0}), 7u);
  EXPECT_EQ(count({.opt_level = 2}), 3u);
  EXPECT_EQ(count({.max_fuse_depth = 2}), 4u);
}

TEST(RelayPolicy, ExplainShowsTheGraph) {
  std::string said = to_text(explain(parse_op(kTwoReductions), relay()));
  EXPECT_NE(said.find("forward: 3 kernels, 2 reductions\n"), std::string::npos) << said;
  EXPECT_NE(said.find("1  s   comm_reduce  y             y (elemwise)    {s}\n"), std::string::npos) << said;
  EXPECT_NE(said.find("(apart: s is a reduction: nothing follows in its kernel)"), std::string::npos) << said;
}

TEST(RelayPolicy, ForwardKeepsWhatTheBackwardWants) {
  std::ifstream file(XHAT_SOURCE_DIR "/examples/batch_norm.xh");
  std::stringstream text;
  text << file.rdbuf();
  Program op = parse_op(text.str());
  CompileOptions options = relay();
  options.stash.policy = StashOptions::Policy::largest;
  CompiledOp kernels = compile(op, options);
  DimValues dims = {{"N", 3}, {"C", 2}, {"H", 4}, {"W", 5}};
  EXPECT_FALSE(stashes(kernels.program()).empty());
  Program derived = gradient(op);
  Arrays data = data_for(derived, dims);
  EXPECT_EQ(difference(evaluate_on(derived, data, dims), run_both(kernels, data, dims), 2e-4), "");
}

TEST(RelayPolicy, DepthIsLimitedInProgramsToo) {
  std::string text = "op f(x: f32[N]) -> (y) {\n", last = "x";
  for (int i = 0; i < 299; ++i) {
    std::string next = "e" + std::to_string(i);
    text += next + "[i] = tanh(" + last + "[i])\n";
    last = next;
  }
  Program op = parse_op(text + "y[i] = tanh(" + last + "[i])\n}");
  xhat::RelayKernels kernels = relay_kernels(infer_program(with_written_ops(op, op)));
  ASSERT_EQ(kernels.groups.size(), 2u);
  EXPECT_EQ(kernels.groups[0].definitions.size(), 256u);
  EXPECT_EQ(kernels.groups[1].definitions.size(), 44u);
  EXPECT_EQ(kernels.program.forward.definitions.size(), 2u);
}

}  // namespace
}  // namespace xhat::relay_policy_test
