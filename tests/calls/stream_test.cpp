// Which results are written past the cache, and what is fetched ahead. (That the bits stay: kernels/past_the_cache_test.cpp.)
#include <gtest/gtest.h>

#include "runtime/call/machine.h"
#include "tests/helpers/lowered_code.h"
#include "tests/helpers/stream_options.h"

namespace xhat::stream_test {
namespace {

using namespace xhat::testing;

// Each line that is asked for stands twice (runtime/store/nontemporal.h).
class StreamFetchesAhead : public ::testing::Test {
 protected:
  static std::string code(const char* text, int64_t width = 320, Halide::Target::Processor tuned_for = Halide::Target::ProcessorGeneric) {
    const CompileOptions o = stream_options(true, 1 << 16);
    const Program forward = infer_program(derive(parse_op(text), o).program);
    Halide::Target target = runtime::cpu_target();
    target.processor_tune = tuned_for;
    return lowered_code(only_spec(forward, {{"N", 3}, {"H", 70}, {"W", width}}, o.machine), target);
  }
};

// Of the rows that the next one is made of, those that this one does not read: one of three.
TEST_F(StreamFetchesAhead, WhatTheNextWindowReads) {
  const char* kBlur = "op f(x: f32[N,H,W]) -> (y) { y[n, i in 0..H, j in 0..W] = sum(r in 0..3, s in 0..3: x[n,i+r-1,j+s-1 else 0]) }";
  const std::string blur = code(kBlur, 300);
  EXPECT_GE(times_in(blur, "prefetch("), 1) << blur;
  EXPECT_EQ(times_in(blur, "prefetch("), 2 * times_in(blur, "produce xh_columns")) << blur;
  EXPECT_EQ(times_in(code(kBlur, 300, Halide::Target::ZnVer4), "prefetch("), times_in(blur, "prefetch("));
}

// Where the row is read for the first time: as many lines as that loop has vectors in a turn.
TEST_F(StreamFetchesAhead, RowsThatAreReadMoreThanOnce) {
  const char* kCentred = "op f(x: f32[H,W]) -> (y) { y[i,j] = x[i,j] - mean(k: x[i,k]) }";
  const std::string centred = code(kCentred);
  EXPECT_GE(times_in(centred, "prefetch("), 2) << centred;
  EXPECT_EQ(times_in(centred, "prefetch("), 2 * times_in(centred.substr(0, centred.find("prefetch(")), "xh_in1[ramp(")) << centred;
  EXPECT_EQ(times_in(code("op f(x: f32[H,W]) -> (y) { y[i,j] = x[i,j] + 1 }"), "prefetch("), 0) << "one loop";
  EXPECT_EQ(times_in(code(kCentred, 1 << 13), "prefetch("), 0) << "32 KiB";
  EXPECT_EQ(times_in(code(kCentred, 320, Halide::Target::ZnVer4), "prefetch("), 0) << "fetches rows by itself";
}

TEST_F(StreamFetchesAhead, InTheLoopThatComputesMost) {
  const std::string softmax = code("op f(x: f32[H,W]) -> (y) { y[i,j] = exp(x[i,j] - max(k: x[i,k])) / sum(k: exp(x[i,k] - max(l: x[i,l]))) }");
  const size_t asked = softmax.rfind("prefetch("), summed = softmax.rfind("produce xh_acc");
  ASSERT_NE(asked, std::string::npos) << softmax;
  EXPECT_LT(asked, summed) << softmax;  // beside the exponentials, not the sum or the quotients
}

// Much arithmetic, or little memory: through the cache.
TEST(Stream, OnlyWhereMemoryIsTheLimit) {
  auto streams = [](const char* body, int64_t n) {
    Program p = parse_op(std::string("op f(x: f32[N]) -> (y) { y[i] = ") + body + " }");
    return plan_kernels(infer_program(derive(p).program), {{"N", n}}).kernels[0].streams;
  };
  EXPECT_TRUE(streams("x[i]*x[i]", 1 << 22));
  EXPECT_TRUE(streams("x[i]^2 + 1", 1 << 22));  // a product, whatever pow costs
  EXPECT_FALSE(streams("x[i]*x[i]", (1 << 22) - 1));
  EXPECT_FALSE(streams("tanh(exp(x[i]))*log(1 + x[i]*x[i])", 1 << 22));
}

// Rows that do not begin with lines go through scratch, which pays only far beyond the cache.
TEST(Stream, RowsOffLinesLater) {
  auto streams = [](const char* body, int64_t rows, int64_t columns) {
    Program p = parse_op(std::string("op f(x: f32[N,D], s: f32[N]) -> (y) { y[i,j] = ") + body + " }");
    return plan_kernels(infer_program(derive(p).program), {{"N", rows}, {"D", columns}}).kernels[0].streams;
  };
  EXPECT_TRUE(streams("x[i,j]*s[i]", 1 << 13, 1024));
  EXPECT_FALSE(streams("x[i,j]*s[i]", 1 << 13, 1000));
  EXPECT_TRUE(streams("x[i,j]*s[i]", 1 << 15, 1000));
  EXPECT_TRUE(streams("x[i,j]*x[i,j]", 1 << 13, 1000)) << "one long row";
  Program p = parse_op("op f(x: f32[N,C,H,W]) -> (y) { y[n,c,h,w] = x[n,c,h,w] - mean(m,i,j: x[m,c,i,j]) }");
  const DimValues images = {{"N", 32}, {"C", 64}, {"H", 56}, {"W", 56}};
  EXPECT_TRUE(plan_kernels(infer_program(derive(p).program), images).kernels[0].streams) << "rows of 56 floats, but images of 196 lines";
}

TEST(Stream, FromWhatTheLastCacheHolds) {
  struct Streamed {
    const char* machine;
    std::vector<int64_t> cache_bytes;
    int threads;
    int64_t mebibytes;
  };
  for (const Streamed& c : {Streamed{"two cores of eight that share a cache", {32 << 10, 1 << 20, 32 << 20}, 2, 24},
                            Streamed{"two cores of a Xeon with many", {48 << 10, 2 << 20, 480 << 20}, 2, 24},
                            Streamed{"a laptop", {48 << 10, 1 << 20, 12 << 20}, 8, 12},
                            Streamed{"a cache on top of a cache", {32 << 10, 1 << 20, 96 << 20}, 16, 96},
                            Streamed{"no third cache", {64 << 10, 4 << 20}, 4, 4},
                            Streamed{"nothing known", {}, 2, 32}})
    EXPECT_EQ(stream_bytes_of(c.cache_bytes, c.threads), c.mebibytes << 20) << c.machine;
}

// What is compiled is for this machine, unless something is given.
TEST(Stream, CompilesForThisMachine) {
  Program op = parse_op("op f(x: f32[N]) -> (y) { y[i] = x[i] + 1 }");
  auto streams = [&](const CompileOptions& o, int64_t bytes) {
    KernelPlan plan = compile(op, o).plan(CompiledOp::Phase::infer, {{"N", bytes / 8}});
    return plan.kernels.at(0).streams;
  };
  CompileOptions here, given;
  const Machine m = this_machine();
  EXPECT_EQ(stream_bytes_here(), stream_bytes_of(m.cache_bytes, m.threads));
  EXPECT_TRUE(streams(here, stream_bytes_here()));
  EXPECT_FALSE(streams(here, stream_bytes_here() - 8));
  given.machine.stream_bytes = 1 << 20;
  EXPECT_TRUE(streams(given, 1 << 20));
  EXPECT_FALSE(streams(given, (1 << 20) - 8));
}

}  // namespace
}  // namespace xhat::stream_test
