// Libraries compiled ahead of time compute the bits that the engine computes in the process, whatever an op's kernels are like:
// reductions across the batch, products, scatters, sums that are carried.
#include <gtest/gtest.h>

#include "tests/helpers/ahead_helper.h"

namespace xhat::ahead_of_many_kernels_test {
namespace {

using namespace xhat::testing;

class AheadOfManyKernels : public Ahead {
 protected:
  // As the evaluator has it.
  void same_values(const std::string& text, const Sizes& sizes, AheadOptions o) {
    SCOPED_TRACE(text);
    for (const auto& [name, value] : sizes.given) o.sizes[name] = {value};
    Program op = parse_op(text), all = gradient(op);
    AheadLibrary made = build_ahead(op, o, path("lib"));
    EXPECT_EQ(made.open, "N");
    Program derived = derive(op, o.compile).program;
    Loaded library(path("lib"), op.name, derived, 0);
    for (const DimValues& dims : sizes.calls()) {
      DimValues solved = solve_dims(derived, {}, dims);
      Arrays data = random_data(all, solved, 3), results = library.run(data, solved), expected = evaluate_on(all, data, solved);
      std::erase_if(results, [](const auto& r) { return r.first.starts_with("infer "); });
      EXPECT_EQ(difference(expected, results, 2e-4), "") << dims_text(dims);
    }
  }
};

const char kBatchNorm[] = R"(op bn(x: f32[N,C,H,W], g: f32[C], b: f32[C], eps: f32 const) -> (y) {
  mu[c] = mean(n,h,w: x[n,c,h,w]); v[c] = mean(n,h,w: (x[n,c,h,w] - mu[c])^2)
  y[n,c,h,w] = (x[n,c,h,w] - mu[c]) / sqrt(v[c] + abs(eps)) * g[c] + b[c]
})";
const char kCrossEntropy[] = R"(op loss(x: f32[N,C], label: i32[N] const) -> (loss) {
  m[n] = max(c: x[n,c]); z[n] = log(sum(c: exp(x[n,c] - m[n]))) + m[n]
  loss = mean(n: z[n] - x[n,label[n]])
})";

const char kBag[] = "op bag(t: f32[V,D], ids: i32[N,L] const) -> (y, total) { y[n,d] = sum(l: t[ids[n,l],d]); total = sum(n,d: y[n,d]^2) }";
const char kNorm[] = "op norm(x: f32[N], eps: f32) -> (y, total) { total = sum(i: x[i]^2) + eps; y[i] = x[i] / sqrt(abs(total)) }";

TEST_F(AheadOfManyKernels, ReductionsAcrossTheBatch) {
  same_bits(kBatchNorm, {{{"C", 5}, {"H", 3}, {"W", 7}}, kBatches}, small_tiles(options()));
}

TEST_F(AheadOfManyKernels, DefaultTilesOfLargeBatches) {
  same_bits(kBatchNorm, {{{"C", 16}, {"H", 14}, {"W", 14}}, {1, 31, 32, 256}}, best_level());
}

TEST_F(AheadOfManyKernels, GathersAndAScalarResult) { same_bits(kCrossEntropy, {{{"C", 37}}, {1, 7, 33, 257}}, small_tiles(best_level())); }

TEST_F(AheadOfManyKernels, Products) {
  same_bits("op dense(x: f32[N,I], w: f32[I,O], b: f32[O]) -> (y) { y[n,o] = tanh(sum(i: x[n,i]*w[i,o]) + b[o]) }",
            {{{"I", 40}, {"O", 48}}, {0, 1, 2, 7, 33, 64, 65, 257}}, small_tiles(best_level()));
}

// Tiles in order, and several kernels in one sweep.
TEST_F(AheadOfManyKernels, SumsThatAreCarried) {
  AheadOptions small = small_tiles(best_level());
  small.compile.machine.cache_bytes = 16 << 10;
  small.compile.machine.least_tiles = 2;
  same_bits(R"(op attention(q: f32[N,S,D], k: f32[N,T,D], v: f32[N,T,D]) -> (y) {
    s[n,i,j] = sum(d: q[n,i,d] * k[n,j,d]); m[n,i] = stop_gradient(max(j: s[n,i,j])); e[n,i,j] = exp(s[n,i,j] - m[n,i])
    y[n,i,d] = sum(j: e[n,i,j] * v[n,j,d]) / sum(j: e[n,i,j]) })",
            {{{"S", 41}, {"T", 29}, {"D", 20}}, {0, 1, 2, 7, 33}}, small);
}

TEST_F(AheadOfManyKernels, Convolutions) {
  same_bits(R"(op conv(x: f32[N,C,H,W], w: f32[K,C,3,3], b: f32[K]) -> (y) {
    dim OH = H / 2
    y[n,k, i in 0..OH, j in 0..W] = max(0, b[k] + sum(c,r,s: x[n,c,2*i+r-1,j+s-1 else 0] * w[k,c,r,s])) })",
            {{{"C", 3}, {"K", 8}, {"H", 10}, {"W", 18}}, {1, 7, 33}}, small_tiles(best_level()));
}

TEST_F(AheadOfManyKernels, OtherTypes) {
  same_bits(R"(op types(x: f16[N,D], g: bf16[D], k: i64 const, mask: bool[N] const, a: f64[D]) -> (y, z, best) {
    y[n,d] = if mask[n] then x[n,d] * g[d] else x[n,d]
    z[d] = sum(n: a[d] * x[n,d]) + f64(k)
    best[n] = argmax(d: x[n,d]) })",
            {{{"D", 12}}, {1, 7, 300}}, small_tiles(options()));
}

// The engine has other code for each of such sizes, as long as they are small; a library cuts them, and so adds up in another order.
TEST_F(AheadOfManyKernels, SizesThatCodeWouldKnow) {
  same_values(kNorm, {{}, {0, 1, 2, 3, 63, 64, 65, 1000, 4097, 30011}}, best_level());
  same_values(kBag, {{{"V", 50}, {"D", 24}, {"L", 3}}, {1, 2, 7, 32, 33, 100, 257, 2000}}, best_level());
}

TEST_F(AheadOfManyKernels, ScattersAndPartialSums) {
  AheadOptions cut = small_tiles(best_level());
  cut.compile.fusion.cut_small = true;
  cut.compile.fusion.policy = FusePolicy::off;
  same_bits(kBag, {{{"V", 50}, {"D", 24}, {"L", 3}}, {1, 7, 32, 33, 100, 257}}, cut);
  same_bits(kNorm, {{}, {1, 63, 64, 65, 1000, 4097, 123457}}, cut);
}

}  // namespace
}  // namespace xhat::ahead_of_many_kernels_test
