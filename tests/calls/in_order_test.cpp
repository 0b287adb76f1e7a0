// Sums that are carried from tile to tile, all of which one thread takes in order (Kernel::sequential): attention's backward without
// S x T scores in memory.
#include <gtest/gtest.h>

#include <limits>

#include "ad/reverse/gradient.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/in_order_helper.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::in_order_test {
namespace {

using namespace xhat::testing;

using Phase = CompiledOp::Phase;

// Results with gaps between their rows, full of NaN before: what is carried is read where it was written, and nothing from before.
TEST(InOrder, ResultsWithGaps) {
  const Program op = parse_op(kAttention), derived = gradient(op);
  const DimValues dims = {{"B", 3}, {"S", 41}, {"T", 29}, {"D", 20}};
  const Arrays data = random_data(derived, dims, 5), right = evaluate_on(derived, data, dims);
  const CompiledOp compiled = compile(op, in_small_tiles(16 << 10));
  const Program& p = compiled.program();
  Call call(p, dims);
  call.give(p.inputs, data);
  call.give(p.cotangents, data);
  call.expect(p.outputs);
  const Stash stash = compiled.forward(call.arguments({p.inputs, p.outputs}));
  std::vector<Argument> arguments = call.arguments({p.inputs, p.outputs, p.cotangents});
  std::map<std::string, std::vector<float>> memory;
  std::map<std::string, std::vector<int64_t>> strides_of;
  for (TensorId t : p.gradients) {
    const std::vector<int64_t> shape = shape_of(p, t, dims);
    const std::vector<int64_t>& strides = strides_of[p.tensor(t).name] = {shape[1] * (shape[2] + 3) + 5, shape[2] + 3, 1};
    std::vector<float>& m = memory[p.tensor(t).name];
    m.assign(static_cast<size_t>(shape[0] * strides[0]), std::numeric_limits<float>::quiet_NaN());
    arguments.push_back({p.tensor(t).name, TensorView(m.data(), DType::f32, shape, strides)});
  }
  compiled.backward(arguments, stash);
  for (TensorId t : p.gradients) {
    const std::string& name = p.tensor(t).name;
    const Array& wanted = right.at(name);
    for (int64_t b = 0, i = 0; b < wanted.shape[0]; ++b)
      for (int64_t r = 0; r < wanted.shape[1]; ++r)
        for (int64_t d = 0; d < wanted.shape[2]; ++d, ++i)
          ASSERT_NEAR(memory.at(name)[static_cast<size_t>(b * strides_of.at(name)[0] + r * strides_of.at(name)[1] + d)],
                      wanted.reals[static_cast<size_t>(i)], 1e-4)
              << name << " at " << b << ", " << r << ", " << d;
  }
}

// What is kept, handed on and delivered has no S x T elements, if the budget is two numbers a row.
TEST(InOrder, AttentionKeepsRowStatistics) {
  CompileOptions options;
  options.stash.policy = StashOptions::Policy::budget;
  const DimValues sizes = {{"B", 32}, {"S", 1024}, {"T", 1024}, {"D", 64}};
  options.stash.budget = 2 * 4 * 32 * 1024;
  const CompiledOp op = compile(parse_op(kAttention), options);
  const auto largest = static_cast<size_t>(32 * 1024 * 64);
  for (auto phase : {Phase::forward, Phase::backward}) {
    const KernelPlan plan = op.plan(phase, sizes);
    EXPECT_EQ(plan.sweeps(), 1);
    const Program p = phase == Phase::forward ? forward_program(op.program(sizes)) : backward_program(op.program(sizes));
    for (const Kernel& k : plan.kernels)
      for (TensorId t : k.results) {
        size_t n = 1;
        for (int64_t e : shape_of(p, t, sizes)) n *= static_cast<size_t>(e);
        EXPECT_LE(n, largest) << p.tensor(t).name;
      }
  }
  options.machine = in_small_tiles(16 << 10).machine;
  const Program derived = gradient(parse_op(kAttention));
  const DimValues small = {{"B", 3}, {"S", 41}, {"T", 29}, {"D", 20}};
  options.stash.budget = 2 * 4 * 3 * 41;
  const Arrays data = random_data(derived, small, 5);
  EXPECT_EQ(difference(evaluate_on(derived, data, small), run_both(compile(parse_op(kAttention), options), data, small), 1e-4), "");
}

}  // namespace
}  // namespace xhat::in_order_test
