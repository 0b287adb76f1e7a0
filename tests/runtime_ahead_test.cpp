// Libraries compiled ahead of time compute the bits that the engine computes in the process, at any size of the open dim, on
// every processor level that this machine has; and say what is wrong with a call before they write.
#include <gtest/gtest.h>

#include <thread>

#include "ad/gradient.h"
#include "runtime/ahead.h"
#include "runtime/kernel_cache.h"
#include "tests/ahead_library.h"
#include "tests/golden.h"
#include "tests/tool_helper.h"

namespace xhat {
namespace {

using namespace xhat::testing;

class Ahead : public Tool {
 protected:
  AheadOptions options() const {
    AheadOptions o;
    o.compile.threads = 2;
    o.levels = levels_here();
    o.support = XHAT_BUILD_DIR "/libxhat_ahead.a";
    return o;
  }

  struct Sizes {
    DimValues given;              // what the library is made for
    std::vector<int64_t> ns = {};  // of N, which stays open
    std::vector<DimValues> calls() const {
      std::vector<DimValues> all;
      for (int64_t n : ns) {
        all.push_back(given);
        all.back()["N"] = n;
      }
      return all;
    }
  };

  // The bits of the engine, on each of the levels.
  void same_bits(const std::string& text, const AheadOptions& o, const std::vector<DimValues>& calls) {
    SCOPED_TRACE(text);
    Program op = parse_op(text), all = gradient(op);
    build_ahead(op, o, path("lib"));
    CompileOptions options = o.compile;
    Program derived = derive(op, options).program;
    int copy = 0;
    for (CpuLevel level : o.levels) {
      Environment forced("XHAT_CPU_LEVEL", name_of(level));
      Loaded library(path("lib"), op.name, derived, copy++);
      EXPECT_EQ(library.level(), name_of(level));
      options.cache = std::make_shared<runtime::KernelCache>();
      CompiledOp compiled = compile(op, options);
      for (const DimValues& dims : calls) {
        DimValues solved = solve_dims(derived, {}, dims);
        Arrays data = random_data(all, solved, 3);
        Arrays expected = run_both(compiled, data, solved);
        for (auto& [name, array] : run_infer(compiled, data, solved)) expected["infer " + name] = array;
        EXPECT_EQ(bits_differ(expected, library.run(data, solved)), "") << name_of(level) << " " << dims_text(dims);
      }
    }
  }
  void same_bits(const std::string& text, const Sizes& sizes, AheadOptions o) {
    for (const auto& [name, value] : sizes.given) o.sizes[name] = {value};
    same_bits(text, o, sizes.calls());
  }

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

  AheadOptions best_level() const {
    AheadOptions o = options();
    o.levels = {o.levels.back()};
    return o;
  }
  // Several tiles soon.
  static AheadOptions small_tiles(AheadOptions o) {
    o.compile.fusion.serial_bytes = 4 << 10;
    o.compile.fusion.tile_bytes = 2 << 10;
    return o;
  }
};

const std::vector<int64_t> kBatches = {0, 1, 2, 7, 32, 33, 100, 257};
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

using AheadOfManyKernels = Ahead;

TEST_F(AheadOfManyKernels, ReductionsAcrossTheBatch) {
  same_bits(kBatchNorm, {{{"C", 5}, {"H", 3}, {"W", 7}}, kBatches}, small_tiles(options()));
}

TEST_F(Ahead, DefaultTilesOfLargeBatches) { same_bits(kBatchNorm, {{{"C", 16}, {"H", 14}, {"W", 14}}, {1, 31, 32, 256}}, best_level()); }

TEST_F(Ahead, Rows) {
  same_bits(R"(op softmax(x: f32[N,D]) -> (y) {
    m[n] = max(d: x[n,d]); e[n,d] = exp(x[n,d] - m[n]); y[n,d] = e[n,d] / sum(k: e[n,k]) })",
            {{{"D", 70}}, kBatches}, small_tiles(options()));
}

TEST_F(AheadOfManyKernels, GathersAndAScalarResult) { same_bits(kCrossEntropy, {{{"C", 37}}, {1, 7, 33, 257}}, small_tiles(best_level())); }

TEST_F(Ahead, Products) {
  same_bits("op dense(x: f32[N,I], w: f32[I,O], b: f32[O]) -> (y) { y[n,o] = tanh(sum(i: x[n,i]*w[i,o]) + b[o]) }",
            {{{"I", 40}, {"O", 48}}, {0, 1, 2, 7, 33, 64, 65, 257}}, small_tiles(best_level()));
}

// Tiles in order, and several kernels in one sweep.
TEST_F(AheadOfManyKernels, SumsThatAreCarried) {
  AheadOptions small = small_tiles(best_level());
  small.compile.fusion.cache_bytes = 16 << 10;
  small.compile.fusion.least_tiles = 2;
  same_bits(R"(op attention(q: f32[N,S,D], k: f32[N,T,D], v: f32[N,T,D]) -> (y) {
    s[n,i,j] = sum(d: q[n,i,d] * k[n,j,d]); m[n,i] = stop_gradient(max(j: s[n,i,j])); e[n,i,j] = exp(s[n,i,j] - m[n,i])
    y[n,i,d] = sum(j: e[n,i,j] * v[n,j,d]) / sum(j: e[n,i,j]) })",
            {{{"S", 41}, {"T", 29}, {"D", 20}}, {0, 1, 2, 7, 33}}, small);
}

TEST_F(Ahead, Convolutions) {
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
TEST_F(Ahead, SizesThatCodeWouldKnow) {
  same_values(kNorm, {{}, {0, 1, 2, 3, 63, 64, 65, 1000, 4097, 30011}}, best_level());
  same_values(kBag, {{{"V", 50}, {"D", 24}, {"L", 3}}, {1, 2, 7, 32, 33, 100, 257, 2000}}, best_level());
}

TEST_F(Ahead, ScattersAndPartialSums) {
  AheadOptions cut = small_tiles(best_level());
  cut.compile.fusion.cut_small = true;
  cut.compile.fusion.policy = FusePolicy::off;
  same_bits(kBag, {{{"V", 50}, {"D", 24}, {"L", 3}}, {1, 7, 32, 33, 100, 257}}, cut);
  same_bits(kNorm, {{}, {1, 63, 64, 65, 1000, 4097, 123457}}, cut);
}

TEST_F(Ahead, SizesFromAList) {
  AheadOptions o = best_level();
  o.sizes = {{"D", {8, 20}}};
  same_bits("op rows(x: f32[N,D]) -> (y) { y[n] = sum(d: x[n,d]^2) }", o,
            {{{"N", 1}, {"D", 8}}, {{"N", 33}, {"D", 8}}, {{"N", 1}, {"D", 20}}, {{"N", 33}, {"D", 20}}});
  o.sizes = {{"D", {8}}, {"N", {3, 5}}};
  same_bits("op fixed(x: f32[N,D]) -> (y) { y[n] = sum(d: x[n,d]^2) }", o, {{{"N", 3}, {"D", 8}}, {{"N", 5}, {"D", 8}}});
}

TEST_F(Ahead, WhatMustBeGivenIsSaid) {
  Program op = parse_op("op rows(x: f32[N,D,E]) -> (y) { y[n,e] = sum(d: x[n,d,e]^2) }");
  auto message = [&](const std::map<std::string, std::vector<int64_t>>& sizes) {
    AheadOptions o = best_level();
    o.sizes = sizes;
    try {
      build_ahead(op, o, path("lib"));
    } catch (const Error& e) {
      return e.message();
    }
    return std::string("fine");
  };
  EXPECT_EQ(message({}).substr(0, 58), "op rows: the sizes N, D, E are not given; all but one must");
  EXPECT_EQ(message({{"N", {2}}, {"D", {3}}}).substr(0, 35), "op rows: the size E must be given, ");
  EXPECT_EQ(message({{"D", {3}}, {"E", {4}}, {"F", {4}}}), "op rows: there is no dim F; it has N, D, E");
  EXPECT_FALSE(fs::exists(path("lib")) && !fs::is_empty(path("lib"))) << "nothing is left of what failed";
}

}  // namespace
}  // namespace xhat
