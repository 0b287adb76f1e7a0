// The quick answers about bounds are those of isl.
#include "expr/index/plain_bounds.h"

#include <gtest/gtest.h>

#include <random>

#include "expr/index/affine.h"

namespace xhat::plain_bounds_test {
namespace {

using Verdict = BoundsAnswer::Verdict;

struct Window {
  Arena a;
  Id n = a.dim("N"), h = a.axis("h"), i = a.axis("i");
  Id number(int64_t k) { return a.integer(k); }
  // i in max(0,h-before)..min(N,h+after), for h in 0..N
  std::vector<AxisRange> axes(int64_t before, int64_t after) {
    Id begin = a.binary(Op::maximum, number(0), a.sub(h, number(before)));
    Id end = a.binary(Op::minimum, n, a.add(h, number(after)));
    return {{h, number(0), n}, {i, begin, end}};
  }
};

TEST(PlainBounds, WindowsAndTheirTapsNeedNoProof) {
  Window w;
  std::vector<AxisRange> axes = w.axes(1, 2);
  Id tap = w.a.sub(w.a.add(w.i, w.number(1)), w.h);
  EXPECT_TRUE(surely_inside(w.a, w.i, w.n, axes));
  EXPECT_TRUE(surely_inside(w.a, tap, w.number(3), axes));
  EXPECT_FALSE(surely_inside(w.a, tap, w.number(2), axes));
  // Where there is a point, N is not 0.
  EXPECT_TRUE(surely_inside(w.a, w.a.sub(w.n, w.number(1)), w.n, axes));
  EXPECT_FALSE(surely_inside(w.a, w.a.sub(w.n, w.number(1)), w.n, {}));
  std::vector<AxisRange> gate = {{w.i, w.number(0), w.a.mul(w.number(4), w.n)}};
  EXPECT_TRUE(surely_outside(w.a, w.i, w.n, gate));
  EXPECT_FALSE(surely_outside(w.a, w.i, w.a.mul(w.n, w.number(4)), gate));
}

TEST(PlainBounds, AgreeWithIsl) {
  Window w;
  std::mt19937 random(7);
  auto pick = [&](int low, int high) { return std::uniform_int_distribution(low, high)(random); };
  int inside = 0, outside = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<AxisRange> axes = w.axes(pick(-1, 2), pick(-1, 3));
    if (pick(0, 1)) axes[1] = {w.i, w.number(pick(0, 1)), w.a.add(w.a.mul(w.number(pick(1, 2)), w.n), w.number(pick(0, 2)))};
    Id index = w.number(pick(-1, 2));
    for (auto [node, most] : {std::pair(w.h, 1), {w.i, 1}, {w.n, 1}})
      if (int k = pick(-most, most)) index = w.a.add(index, w.a.mul(w.number(k), node));
    Id extent = pick(0, 1) ? w.number(pick(1, 4)) : w.a.mul(w.number(pick(1, 2)), w.n);
    bool proved = prove_bounds(w.a, {axes, {}, index, extent}).verdict == Verdict::proved;
    bool in = surely_inside(w.a, index, extent, axes), out = surely_outside(w.a, index, extent, axes);
    EXPECT_TRUE(!in || proved) << round;
    EXPECT_TRUE(!out || !proved) << round;
    inside += in;
    outside += out;
  }
  EXPECT_GT(inside, 5);
  EXPECT_GT(outside, 50);
}

}  // namespace
}  // namespace xhat::plain_bounds_test
