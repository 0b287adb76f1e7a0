// One compiled kernel serves all sizes of a batch: what is compiled anew per size is counted. (The tails:
// kernels/batch_sizes_of_many_kernels_test.cpp.)
#include <gtest/gtest.h>

#include <set>

#include "ad/reverse/gradient.h"
#include "runtime/cpu/kernel_cache.h"
#include "runtime/kernel/kernel_spec.h"
#include "tests/helpers/batch_ops.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::batch_sizes_test {
namespace {

using namespace xhat::testing;

Program derived(const std::string& text) { return derive(parse_op(text)).program; }

// Distinct kernels of a direction, over sizes of the batch; the code is compiled once for each.
size_t kernels(const Program& direction, DimValues dims, std::initializer_list<int64_t> sizes) {
  std::set<std::string> keys;
  for (int64_t n : sizes) {
    dims["N"] = n;
    DimValues all = solve_dims(direction, {}, dims);
    for (const Kernel& k : plan_kernels(direction, all).kernels)
      keys.insert(runtime::make_spec(direction, k, all, std::vector<bool>(direction.tensors.size(), true)).key());
  }
  return keys.size();
}

// A row in each tile, some rows in each, and what small batches cut besides: no more than that of 14 sizes. Backwards have
// several kernels each, and put them together in another way when the batch is large.
TEST(BatchSizes, FewKernelsServeThemAll) {
  struct Case {
    BatchOp op;
    size_t infer, backward;  // kernels at most
  };
  const std::initializer_list<int64_t> sizes = {2, 3, 5, 7, 16, 31, 32, 33, 64, 65, 100, 128, 200, 256};
  for (const auto& [op, infer, backward] : std::vector<Case>{
           {{kTanh, {}}, 1, 1},
           {{kGelu, {{"C", 1024}}}, 2, 4},
           {{kSoftmax, {{"D", 1024}}}, 2, 2},
           {{kLayerNorm, {{"D", 1024}}}, 2, 5},
           {{kBatchNorm, {{"C", 64}, {"H", 14}, {"W", 14}}}, 2, 3},
           {{kCrossEntropy, {{"C", 1000}}}, 4, 2},
           {{kConv, {{"C", 16}, {"K", 16}, {"H", 14}, {"W", 14}}}, 4, 14},
           {{kDepthwise, {{"C", 16}, {"H", 14}, {"W", 14}}}, 3, 4},
           {{kEmbedding, {{"V", 1000}, {"D", 128}, {"L", 20}}}, 3, 3}}) {
    Program p = derived(op.text);
    EXPECT_LE(kernels(infer_program(p), op.dims, sizes), infer) << op.text;
    EXPECT_LE(kernels(backward_program(p), op.dims, sizes), backward) << op.text;
  }
}

// Rows of a product's block are chosen for a class of sizes.
TEST(BatchSizes, ProductsHaveAKernelPerClassOfRows) {
  Program p = derived(kDense);
  const DimValues dims = {{"I", 256}, {"O", 512}};
  EXPECT_LE(kernels(infer_program(p), dims, {33, 40, 48, 57, 64}), 3u);
  EXPECT_LE(kernels(infer_program(p), dims, {300, 500, 700, 1000, 1500, 2000, 4096}), 2u);
  EXPECT_EQ(kernels(infer_program(p), {{"I", 256}, {"O", 512}}, {1000}), kernels(infer_program(p), dims, {1000, 1001, 1002, 1003}));
}

// What is counted is what is compiled.
TEST(BatchSizes, ASizeThatIsNewCompilesNothing) {
  for (const BatchOp& op : {BatchOp{kSoftmax, {{"D", 64}}}, BatchOp{kBatchNorm, {{"C", 3}, {"H", 5}, {"W", 7}}}}) {
    CompileOptions options;
    options.cache = std::make_shared<runtime::KernelCache>();
    CompiledOp compiled = compile(parse_op(op.text), options);
    DimValues dims = op.dims;
    auto compile_for = [&](int64_t n) {
      dims["N"] = n;
      for (auto phase : {CompiledOp::Phase::infer, CompiledOp::Phase::forward, CompiledOp::Phase::backward}) compiled.prepare(phase, dims);
      return options.cache->size();
    };
    size_t once = compile_for(9);
    EXPECT_GT(once, 0u);
    for (int64_t n : {2, 3, 8, 10, 17, 31}) EXPECT_EQ(compile_for(n), once) << op.text << n;
  }
}

// A size as a number: as if it stood in the code.
TEST(BatchSizes, NumbersMadeOfSizesAreArguments) {
  const char* text = R"(op f(x: f64[N,D]) -> (y, z) {
    y[d] = sum(n: x[n,d]) / (N*D) + f64(N)/3
    z[n,d] = if f64(N) > 10 then x[n,d] * f64(N*N) else x[n,d] / f64(N+D)
  })";
  CompiledOp compiled = compile(parse_op(text));
  for (int64_t n : {1, 7, 10, 11, 30}) {
    DimValues dims = {{"N", n}, {"D", 21}};
    Program all = gradient(parse_op(text));
    Arrays data = random_data(all, dims, 3);
    EXPECT_EQ(difference(evaluate_on(all, data, dims), run_both(compiled, data, dims), 1e-12), "") << n;
  }
}

}  // namespace
}  // namespace xhat::batch_sizes_test
