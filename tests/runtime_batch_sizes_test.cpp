// One compiled kernel serves all sizes of a batch: what is compiled anew per size is counted, and the tails are right.
#include <gtest/gtest.h>

#include <set>

#include "ad/gradient.h"
#include "runtime/kernel_cache.h"
#include "runtime/kernel_spec.h"
#include "tests/golden.h"
#include "tests/runtime_helper.h"

namespace xhat {
namespace {

using namespace xhat::testing;

struct BatchOp {
  const char* text;
  DimValues dims;  // but for N
};

const char kTanh[] = "op f(x: f32[N]) -> (y) { y[i] = tanh(x[i]) }";
const char kGelu[] = R"(op f(x: f32[N,C], b: f32[C]) -> (y) {
  u[n,c] = x[n,c] + b[c]
  y[n,c] = 0.5 * u[n,c] * (1 + tanh(0.79788456 * (u[n,c] + 0.044715*u[n,c]^3)))
})";
const char kSoftmax[] = R"(op f(x: f32[N,D]) -> (y) {
  m[n] = max(d: x[n,d]); e[n,d] = exp(x[n,d] - m[n]); y[n,d] = e[n,d] / sum(k: e[n,k])
})";
const char kLayerNorm[] = R"(op f(x: f32[N,D], g: f32[D], b: f32[D]) -> (y) {
  mu[n] = mean(d: x[n,d]); v[n] = mean(d: (x[n,d] - mu[n])^2)
  y[n,d] = (x[n,d] - mu[n]) / sqrt(v[n] + 1e-5) * g[d] + b[d]
})";
const char kBatchNorm[] = R"(op f(x: f32[N,C,H,W], g: f32[C], b: f32[C]) -> (y) {
  mu[c] = mean(n,h,w: x[n,c,h,w]); v[c] = mean(n,h,w: (x[n,c,h,w] - mu[c])^2)
  y[n,c,h,w] = (x[n,c,h,w] - mu[c]) / sqrt(v[c] + 1e-5) * g[c] + b[c]
})";
const char kCrossEntropy[] = R"(op f(x: f32[N,C], label: i32[N] const) -> (loss) {
  m[n] = max(c: x[n,c]); z[n] = log(sum(c: exp(x[n,c] - m[n]))) + m[n]
  loss = mean(n: z[n] - x[n,label[n]])
})";
const char kDense[] = R"(op f(x: f32[N,I], w: f32[I,O], b: f32[O]) -> (y) { y[n,o] = tanh(sum(i: x[n,i]*w[i,o]) + b[o]) })";
const char kConv[] = R"(op f(x: f32[N,C,H,W], w: f32[K,C,3,3], b: f32[K]) -> (y) {
  y[n,k, i in 0..H, j in 0..W] = max(0, b[k] + sum(c,r,s: x[n,c,i+r-1,j+s-1 else 0] * w[k,c,r,s]))
})";
const char kEmbedding[] = "op f(t: f32[V,D], ids: i32[N,L] const) -> (y) { y[n,d] = sum(l: t[ids[n,l],d]) }";
const char kDepthwise[] = R"(op f(x: f32[N,C,H,W], w: f32[C,3,3]) -> (y) {
  y[n,c, i in 0..H, j in 0..W] = sum(r,s: x[n,c,i+r-1,j+s-1 else 0] * w[c,r,s])
})";

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

// One op, sizes one after the other in the same kernels: around the tile, and around the classes.
TEST(BatchSizes, ValuesAgreeAtTheEdges) {
  for (const BatchOp& op : {BatchOp{kTanh, {}}, {kGelu, {{"C", 33}}}, {kSoftmax, {{"D", 70}}}, {kLayerNorm, {{"D", 70}}},
                            {kBatchNorm, {{"C", 5}, {"H", 3}, {"W", 7}}}, {kCrossEntropy, {{"C", 37}}}, {kDense, {{"I", 40}, {"O", 48}}},
                            {kConv, {{"C", 3}, {"K", 8}, {"H", 9}, {"W", 18}}}, {kEmbedding, {{"V", 50}, {"D", 24}, {"L", 3}}},
                            {kDepthwise, {{"C", 3}, {"H", 9}, {"W", 18}}}}) {
    Program written = parse_op(op.text), all = gradient(written);
    CompileOptions options;
    options.fusion.serial_bytes = 4 << 10;  // several tiles soon
    options.fusion.tile_bytes = 2 << 10;
    options.cache = std::make_shared<runtime::KernelCache>();
    CompiledOp compiled = compile(written, options);
    DimValues dims = op.dims;
    std::set<int64_t> sizes = {1, 2, 3, 9};
    dims["N"] = 40;
    for (const Kernel& k : compiled.plan(CompiledOp::Phase::infer, dims).kernels)
      if (!k.shared.empty())
        for (int64_t tile = k.axes[static_cast<size_t>(k.shared[0])].tile, d = -1; d <= 1; ++d)
          for (int64_t n : {tile + d, 4 * tile + d})
            if (n > 0 && n < 70) sizes.insert(n);
    for (int64_t n : sizes) {
      dims["N"] = n;
      Arrays data = random_data(all, dims, 3);
      EXPECT_EQ(difference(evaluate_on(all, data, dims), run_both(compiled, data, dims), 2e-4), "") << op.text << " N=" << n;
    }
    dims["N"] = 0;
    if (std::string(op.text).find("mean(n") == std::string::npos) {  // of nothing
      Arrays data = random_data(all, dims, 3);
      EXPECT_EQ(difference(evaluate_on(all, data, dims), run_both(compiled, data, dims), 2e-4), "") << op.text << " N=0";
    }
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
}  // namespace xhat
