// Segments between offsets in the plan: kernels go over places and segments, not over their pairs.
#include <gtest/gtest.h>

#include "cse/normalize/auto_inliner.h"
#include "fusion/plan/few_pairs.h"
#include "tests/helpers/golden.h"

namespace xhat::segments_test {
namespace {

int64_t tiles_of(const Kernel& k) {
  int64_t tiles = 1;
  for (int c : k.shared) {
    const KernelAxis& axis = k.axes[static_cast<size_t>(c)];
    tiles *= (axis.extent + axis.tile - 1) / axis.tile;
  }
  return tiles;
}

KernelPlan plan_of(const std::string& text, const DimValues& sizes, bool one_thread) {
  PlanRequest request;
  request.machine.scatter_tiles = 4;
  request.one_thread = one_thread;
  return plan_kernels(infer_program(inline_injective(parse_op(text))), sizes, request);
}

// As the gradient of a segment's mean.
const char* const kSpread = R"(op f(dy: f32[R,A], o: i64[R+1], x: f32[S]) -> (g) {
  g[t in 0..S,a] = sum(r in 0..R if o[r] <= t && t < o[r+1]: dy[r,a] / f32(max(1, o[r+1]-o[r])))
})";

// Each tile of places asks all segments: there are as many tiles as threads need, and one for one thread.
TEST(Segments, PlacesHaveFewTilesWhereThereAreManySegments) {
  const DimValues many = {{"S", 24000}, {"R", 6000}, {"A", 16}};
  for (bool one_thread : {false, true}) {
    const KernelPlan plan = plan_of(kSpread, many, one_thread);
    ASSERT_EQ(plan.kernels.size(), 1u);
    EXPECT_EQ(tiles_of(plan.kernels[0]), one_thread ? 1 : 4);
  }
}

// Few segments are asked in no time: tiles stay in the cache.
TEST(Segments, PlacesOfFewSegmentsHaveTilesAsElsewhere) {
  const KernelPlan plan = plan_of(kSpread, {{"S", 240000}, {"R", 60}, {"A", 16}}, true);
  ASSERT_EQ(plan.kernels.size(), 1u);
  EXPECT_GE(tiles_of(plan.kernels[0]), 16);
}

// A sum for each pair of a place and a segment stands where the few pairs are read, and where all are read, it stays.
TEST(Segments, SumsOfPairsAreWhereFewAreRead) {
  auto definitions = [](const std::string& condition) {
    const Program p = parse_op(
        "op f(x: f32[S,A], q: f32[R,A], w: f32[R], o: i64[R+1]) -> (g, h) {\n d[r,t] = sum(a: x[t,a]*q[r,a])\n"
        " g[t] = sum(r in 0..R if " +
        condition + ": w[r]*d[r,t])\n h[r in 0..R] = sum(t if " + condition + ": d[r,t]/w[r])\n}");
    const DimValues sizes = {{"S", 40}, {"R", 30}, {"A", 3}};
    const Program made = few_pairs_where_read(infer_program(inline_injective(p)), sizes, {});
    verify(made);
    const Arrays data = xhat::testing::random_data(p, sizes, 4);
    EXPECT_EQ(xhat::testing::difference(xhat::testing::evaluate_on(p, data, sizes), xhat::testing::evaluate_on(made, data, sizes), 1e-9),
              "");
    return made.forward.definitions.size();
  };
  EXPECT_EQ(definitions("o[r] <= t && t < o[r+1]"), 2u);
  EXPECT_EQ(definitions("t < o[r]"), 3u);
  EXPECT_EQ(definitions("r <= t"), 3u);
}

}  // namespace
}  // namespace xhat::segments_test
