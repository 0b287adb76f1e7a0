// Parts of the runtime by themselves: collapsing axes, keys of kernels, the thread pool, finishing partial results, plans that are kept.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "cse/normalize/auto_inliner.h"
#include "runtime/ahead/support/known_plans.h"
#include "runtime/call/cpu_direction.h"
#include "runtime/host/finish.h"
#include "runtime/host/thread_pool.h"
#include "tests/helpers/lowered_code.h"

namespace xhat::runtime::parts_test {
namespace {

KernelSpec spec_of(const std::string& text, const DimValues& sizes) {
  return testing::only_spec(infer_program(inline_injective(parse_op(text))), sizes);
}

TEST(KernelSpec, AnElementWiseOpIsOneLoop) {
  KernelSpec s =
      spec_of("op f(x: f32[A,B,C], z: f32[A,B,C]) -> (y) { y[a,b,c] = x[a,b,c] * z[a,b,c] }", {{"A", 64}, {"B", 100}, {"C", 50}});
  EXPECT_EQ(s.axes.size(), 1u);
  EXPECT_EQ(s.axes.begin()->second.extent, 64 * 100 * 50);
}

TEST(KernelSpec, BatchNormsImageIsOneAxis) {
  KernelSpec s = spec_of("op f(x: f32[N,C,H,W]) -> (y) { m[c] = sum(n,h,w: x[n,c,h,w]); y[n,c,h,w] = x[n,c,h,w] - m[c] }",
                         {{"N", 32}, {"C", 64}, {"H", 56}, {"W", 56}});
  EXPECT_EQ(s.axes.size(), 3u);  // n, c, hw
}

TEST(KernelSpec, AxesThatAreUsedApartStayApart) {
  KernelSpec broadcast = spec_of("op f(x: f32[A,B], z: f32[B]) -> (y) { y[a,b] = x[a,b] * z[b] }", {{"A", 300}, {"B", 200}});
  EXPECT_EQ(broadcast.axes.size(), 2u);
  KernelSpec transposed = spec_of("op f(x: f32[A,B]) -> (y) { y[b,a] = x[a,b] }", {{"A", 300}, {"B", 200}});
  EXPECT_EQ(transposed.axes.size(), 2u);
  KernelSpec value = spec_of("op f(x: f32[A,B]) -> (y) { y[a,b] = x[a,b] * f32(b) }", {{"A", 300}, {"B", 200}});
  EXPECT_EQ(value.axes.size(), 2u);
}

TEST(KernelSpec, TheKeyForgetsBatchSizesAndNames) {
  const char* rows = "op f(x: f32[N,D]) -> (y) { s[n] = sum(d: x[n,d]); y[n,d] = x[n,d] / s[n] }";
  const char* other = "op g(u: f32[K,L]) -> (v) { t[k] = sum(l: u[k,l]); v[k,l] = u[k,l] / t[k] }";
  std::string key = spec_of(rows, {{"N", 32768}, {"D", 256}}).key();
  EXPECT_EQ(key, spec_of(rows, {{"N", 65536}, {"D", 256}}).key());
  EXPECT_EQ(key, spec_of(other, {{"K", 32768}, {"L", 256}}).key());
  EXPECT_NE(key, spec_of(rows, {{"N", 32768}, {"D", 255}}).key());
  // A size that the code depends on is in the key.
  const char* flipped = "op f(x: f32[N,D]) -> (y) { y[n in 0..N, d] = x[N-1-n,d] }";
  EXPECT_NE(spec_of(flipped, {{"N", 4096}, {"D", 256}}).key(), spec_of(flipped, {{"N", 8192}, {"D", 256}}).key());
}

bool reads_alone(const KernelSpec& s, const SpecMember& m) { return (*s.arena)[m.body].op == Op::read; }

TEST(KernelSpec, WhatAMemberWritesIsReadAgain) {
  const char* text = "op f(x: f32[N,C]) -> (y, s) { y[n,c] = tanh(x[n,c]); s[c] = sum(n: tanh(x[n,c])) }";
  KernelSpec small = spec_of(text, {{"N", 1000}, {"C", 256}});
  ASSERT_EQ(small.members.size(), 2u);
  EXPECT_FALSE(reads_alone(small, small.members[0]));
  EXPECT_TRUE(reads_alone(small, small.members[1]));
  // What goes past the cache is not: there both read a temporary.
  KernelSpec large = spec_of(
      "op f(x: f32[N,C], z: f32[N,C]) -> (y, s) {"
      " y[n,c] = tanh(x[n,c]) + z[n,c]; s[c] = sum(n: tanh(x[n,c]) + z[n,c]) }",
      {{"N", 8192}, {"C", 1024}});
  ASSERT_TRUE(large.streams);
  ASSERT_EQ(large.members.size(), 3u);
  EXPECT_TRUE(reads_alone(large, large.members[1]));
  EXPECT_TRUE(reads_alone(large, large.members[2]));
}

TEST(KernelSpec, ConditionsOfAProductsVectorsAreZerosOfAFactor) {
  KernelSpec s = spec_of(
      "op f(dy: f32[N,K,W], w: f32[K,C,3]) -> (g) {"
      " g[n,c,l in 0..W] = sum(k, j in max(0,l-1)..min(l+2,W): dy[n,k,j] * w[k,c,l+1-j]) }",
      {{"N", 8}, {"K", 32}, {"C", 32}, {"W", 56}});
  ASSERT_EQ(s.members.size(), 1u);
  const SpecMember& m = s.members[0];
  EXPECT_TRUE(is_true(*s.arena, m.condition));
  EXPECT_EQ((*s.arena)[(*s.arena)[m.body].arg(0)].op, Op::select);
  const Node w = (*s.arena)[(*s.arena)[m.body].arg(1)];
  ASSERT_EQ(w.op, Op::read);
  EXPECT_EQ(read_indices(w).back(), m.reduced.back());  // it was 2-t
  EXPECT_EQ(s.axes.at(m.reduced.back()).extent, 3);
}

// Each block of a concatenation computes its own; what is cheap, or changes at no common distance, stays as it is.
TEST(KernelSpec, BlocksOfAChoiceAreWrittenOut) {
  auto blocks = [](const std::string& text, const DimValues& sizes) {
    KernelSpec s = spec_of(text, sizes);
    int64_t n = 0;
    for (auto& [id, axis] : s.axes)
      if (axis.unrolled) n = axis.extent;
    if (n > 0) {
      for (Id id : reachable(*s.arena, s.members[0].body))
        if ((*s.arena)[id].op == Op::lt || (*s.arena)[id].op == Op::le) {
          EXPECT_EQ((*s.arena)[id].free_axes().size(), 1u) << "a condition on more than the number of the block";
        }
    }
    return n;
  };
  std::string gates =
      "op f(x: f32[N,H], w: f32[N,H]) -> (y) { y[n,j in 0..3*H] = if j < H then exp(x[n,j]) else "
      "if j < 2*H then tanh(x[n,j-H])*sin(w[n,j-H]) else log(w[n,3*H-1-j]) }";
  EXPECT_EQ(blocks(gates, {{"N", 300}, {"H", 64}}), 3);
  EXPECT_EQ(blocks(gates, {{"N", 300}, {"H", 4}}), 0);
  std::string uneven = "op f(x: f32[N,H]) -> (y) { y[n,j] = if j < 100 then exp(x[n,j])*sin(x[n,j]) else log(x[n,j])*tanh(x[n,j]) }";
  EXPECT_EQ(blocks(uneven, {{"N", 300}, {"H", 256}}), 0);
  EXPECT_EQ(blocks(uneven, {{"N", 300}, {"H", 400}}), 4);
  EXPECT_EQ(blocks("op f(x: f32[N,H]) -> (y) { y[n,j] = if j < 128 then x[n,j] else 0 }", {{"N", 300}, {"H", 256}}), 2);
}

// The gradient of a convolution looks at three places where the convolution had three taps, not at the whole image.
TEST(KernelSpec, ARangeThatMovesIsAWindow) {
  KernelSpec s = spec_of(R"(op f(dy: f32[C,H], w: f32[C,3]) -> (dx) {
    dx[h in 0..H] = sum(c, i in max(0,h-1)..min(h+2,H): dy[c,i]*w[c,h+1-i]) })",
                         {{"C", 8}, {"H", 100}});
  const SpecMember& m = s.members.at(0);
  ASSERT_EQ(m.reduced.size(), 2u);
  EXPECT_EQ(s.axes.at(m.reduced[1]).extent, 3);
  // w is read at 2-t: nothing of h is left in it.
  int reads = 0;
  for (Id id : reachable(*s.arena, m.body)) {
    const Node& n = (*s.arena)[id];
    if (n.op != Op::read || s.tensors[n.symbol].shape.back() != 3) continue;
    EXPECT_EQ(std::ranges::count(n.free_axes(), m.left[0]), 0);
    ++reads;
  }
  EXPECT_EQ(reads, 1);
}

TEST(KnownPlans, AreMadeOnceForAVariantAndSizesAndTheOldestGoes) {
  using Plans = KnownPlans<int64_t>;
  const std::vector<AheadVariant> infer(1), forward(1);  // equal, but not the same
  Plans plans;
  int made = 0;
  auto find = [&](const std::vector<AheadVariant>& of, int64_t n) {
    return *plans.find(of, {7, n}, AheadLayout::dense, [&] {
      ++made;
      return std::make_shared<const int64_t>(&of == &infer ? n : -n);
    });
  };
  for (int64_t n = 1; n <= 2; ++n)
    for (int again = 0; again < 2; ++again) {
      EXPECT_EQ(find(infer, n), n);
      EXPECT_EQ(find(forward, n), -n);
    }
  EXPECT_EQ(made, 4);
  const auto kept = static_cast<int64_t>(Plans::kKept);
  for (int64_t n = 3; n < kept; ++n) find(infer, n);  // one more than are kept
  EXPECT_EQ(made, kept + 1);
  find(forward, 1);
  EXPECT_EQ(made, kept + 1);
  find(infer, 1);  // the first of all
  EXPECT_EQ(made, kept + 2);
}

TEST(KnownPlans, MayFailToBeMade) {
  KnownPlans<int> plans;
  const std::vector<AheadVariant> variants;
  EXPECT_THROW(plans.find(variants, {1}, AheadLayout::dense, []() -> std::shared_ptr<const int> { throw Error("no variant"); }), Error);
  EXPECT_EQ(*plans.find(variants, {1}, AheadLayout::dense, [] { return std::make_shared<const int>(5); }), 5);
}

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (int64_t count : {0, 1, 2, 1000}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
      auto task = [&](int worker, int64_t i) {
        EXPECT_LT(worker, threads);
        ++hits[static_cast<size_t>(i)];
      };
      for (int repeat = 0; repeat < 20; ++repeat) pool.run(count, task);
      for (auto& h : hits) EXPECT_EQ(h, 20);
    }
  }
}

TEST(Finish, CombinesInIndexOrder) {
  std::vector<float> partial = {1, 2, 3, 4, 5, 6};
  std::vector<float> out(2);
  combine_partials(Op::sum, partial.data(), 3, TensorView(out.data(), {2}));
  EXPECT_EQ(out, (std::vector<float>{9, 12}));
  combine_partials(Op::max, partial.data(), 3, TensorView(out.data(), {2}));
  EXPECT_EQ(out, (std::vector<float>{5, 6}));
  combine_partials(Op::sum, partial.data(), 0, TensorView(out.data(), {2}));
  EXPECT_EQ(out, (std::vector<float>{0, 0}));
  // Into a buffer with gaps.
  std::vector<float> gaps(4, -1);
  int64_t shape[] = {2}, steps[] = {2};
  combine_partials(Op::prod, partial.data(), 2, TensorView(gaps.data(), std::span<const int64_t>(shape), std::span<const int64_t>(steps)));
  EXPECT_EQ(gaps, (std::vector<float>{3, -1, 8, -1}));
}

TEST(Finish, MaxKeepsNaN) {
  std::vector<float> partial = {1, std::numeric_limits<float>::quiet_NaN(), 3};
  float out = 0;
  combine_partials(Op::max, partial.data(), 3, TensorView(&out, std::span<const int64_t>{}));
  EXPECT_TRUE(std::isnan(out));
}

}  // namespace
}  // namespace xhat::runtime::parts_test
