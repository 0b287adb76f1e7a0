// Tiles and loops that only exist at certain sizes: every op here runs in several tiles, or reads at the very edge of
// one, and must agree with the evaluator forward and backward.
#include <gtest/gtest.h>

#include <set>

#include "tests/helpers/agreement.h"
#include "tests/helpers/lowered_code.h"

namespace xhat::tiles_test {
namespace {

using namespace xhat::testing;

// A tile takes what falls into it; once, all of it was added at the tile's own places.
TEST(Tiles, AScatterOverManyTilesAddsWhereItShould) {
  const char* bag = "op bag(t: f32[V,D], ids: i32[B,L]) -> (y) { y[b,d] = sum(l: t[ids[b,l],d]) }";
  expect_agreement(bag, {{"V", 5000}, {"D", 4}, {"B", 50}, {"L", 2}});
  expect_agreement(bag, {{"V", 16}, {"D", 1200}, {"B", 50}, {"L", 2}});  // one row a tile
  expect_agreement("op histogram(w: f32[B], ids: i32[B] const) -> (y) { y[v in 0..20000] = sum(b if ids[b] == v: w[b]) }",
                   {{"B", 60}});
}

TEST(Tiles, ABodyNeedNotReadTheReducedAxis) {
  expect_agreement("op f(x: f32[N]) -> (y) { y[i] = sum(k in 0..3: x[i]) }", {{"N", 5}});
  expect_agreement("op f(x: f32[N]) -> (y) { y[i] = prod(k in 0..100: x[i]*0.5 + 0.5) }", {{"N", 37}});
  expect_agreement("op f(x: f32) -> (y) { y = sum(k in 0..100: x) }", {});
}

// Halide takes a result that is read again for aligned to its vectors; the buffers of these tests are not.
TEST(Tiles, AResultIsReadAgainWhereverItLies) {
  for (const char* type : {"f32", "f64"}) {
    std::string text = std::string("op f(x: ") + type + "[16], n: i32[16]) -> (y, z) {\n" +
                       "  y[i] = x[i] * x[i]\n  z[i] = prod(k: 0.75 + 0.5*(if i64(n[i]) <= k then y[i] else y[k]))\n}\n";
    expect_agreement(text, {});
  }
}

// Halide 21 solves the second condition for k and gets k == 0.
TEST(Tiles, EqualityOfAxesIsWhatItSays) {
  expect_agreement(R"(op f(x: f32[K,N,M]) -> (y) {
    t[k in 0..K, m in 0..M] = sum(j: x[k, min(j, N-1), clamp(m-1, 0, M-1)] * x[k,j,m])
    y[k,n,m] = (if 2*k - 1 == n then t[k,m] else 0) + x[k, n, clamp(m-1, 0, M-1)]
  })", {{"K", 3}, {"N", 7}, {"M", 5}});
}

// Halide finds the divisor to be 0 for every i, and would stop at a division by a constant 0.
TEST(Tiles, ADivisorThatIsNeverMoreThanZero) {
  for (int64_t n : {5, 40})
    expect_agreement("op f(x: f64[N]) -> (y) { y[i] = if x[i] > 100 then x[i] / (if i >= N then x[i] else 0) else x[i] }",
                     {{"N", n}});
}

// Halide 21 refuses these vectors ("Vector lanes of Load must match"): compiled without.
TEST(Tiles, WhereHalideRefusesVectorsThereAreScalars) {
  const char* text = "op f(x: f32[5,5], ids: i64[5]) -> (s) { s[k in 0..5] = x[ids[(k+1)/2], 2*((k+1)/2)-1 else 0] }";
  expect_agreement(text, {});
}

// Halide 21 cannot compile a masked reversed load at a constant place.
TEST(Tiles, ReadsBackwardsAtAnyLength) {
  for (int64_t n : {1, 2, 3, 5, 17, 33, 100, 1001}) {
    expect_agreement("op f(x: f32[N]) -> (y) { y[i in 0..N] = x[N-1-i] }", {{"N", n}});
    expect_agreement("op f(x: f32[N], s: f32) -> (y) { y[i] = x[N-1-i]*x[i] + s }", {{"N", n}});
  }
  for (int64_t n : {3, 17, 33})
    expect_agreement("op f(x: f32[M,N], w: f32[N]) -> (y) { y[i in 0..N] = sum(m: x[m,N-1-i]*w[N-1-i]) }",
                     {{"M", 3}, {"N", n}});
}

TEST(Tiles, StencilsMeetAtTheirEdges) {
  CompileOptions small_tiles;  // the evaluator's gradient takes time quadratic in the size
  small_tiles.machine.serial_bytes = 0;
  for (int64_t bytes : {64, 512, 4096}) {
    small_tiles.machine.tile_bytes = bytes;
    expect_agreement(R"(op blur(x: f32[N,H,W]) -> (y) {
      y[n, i in 0..H, j in 0..W] = sum(r in 0..3, s in 0..3: x[n,i+r-1,j+s-1 else 0])
    })", {{"N", 2}, {"H", 13}, {"W", 21}}, small_tiles);
    expect_agreement(R"(op pool(x: f32[N,2*H,2*W]) -> (y) {
      y[n, i in 0..H, j in 0..W] = max(r in 0..2, s in 0..2: x[n,2*i+r,2*j+s])
    })", {{"N", 2}, {"H", 7}, {"W", 19}}, small_tiles);
  }
}

// Conditions on the position that hold for whole blocks of it: at their edges, in sums, in products, in several tiles.
TEST(Tiles, BlocksOfAChoice) {
  const char* gates = "op f(x: f32[N,H], w: f32[N,H]) -> (y) { y[n,j in 0..3*H] = if j < H then exp(x[n,j]) else "
                      "if j < 2*H then tanh(x[n,j-H])*sin(w[n,j-H]) else cos(w[n,3*H-1-j])*exp(x[n,j-2*H]) }";
  const char* summed =
      "op f(x: f32[N,2*H]) -> (y, z) { y[j in 0..2*H] = sum(n: if j >= H then tanh(exp(x[n,j])*x[n,j-H]) else sin(x[n,j]))\n"
      " z[n,j in 0..2*H] = (if H <= j then tanh(x[n,j-H]) else exp(x[n,j+H]))*(if j <= H-1 then sin(x[n,j]) else cos(x[n,j])) }";
  CompileOptions small_tiles;
  small_tiles.machine.serial_bytes = 0;
  small_tiles.machine.tile_bytes = 2048;
  for (const char* text : {gates, summed}) {
    expect_agreement(text, {{"N", 5}, {"H", 16}});
    expect_agreement(text, {{"N", 5}, {"H", 33}}, small_tiles);
  }
}

// s[n,c] lives in the tile of one channel: n is its only dimension there, and C no bound for it.
TEST(Tiles, AValueOfOneChannelIsReadOutsideOfItsOtherAxis) {
  CompileOptions small_tiles;
  small_tiles.machine.serial_bytes = small_tiles.machine.tile_bytes = 0;
  for (auto [n, c] : {std::pair{7, 33}, {33, 7}})
    expect_agreement("op f(x: f32[N,C,H]) -> (y) {\n m[c] = sum(n,h: x[n,c,h])\n s[n,c] = sum(h: (x[n,c,h] - m[c])^2)\n"
                     " y[n,c,h] = x[n,c,h]*s[n+1,c else 0.5] }",
                     {{"N", n}, {"C", c}, {"H", 40}}, small_tiles);
}

// Sums over one window, whoever wrote them: a bilateral filter's backward gathers by windows of its own what its forward's
// window reads, and one exponential serves all three sums.
TEST(Tiles, SumsOverTheSameNeighboursAreOneLoop) {
  const char* bilateral = R"(op bilateral(x: f32[N,H,W]) -> (y) {
    w[n,i,j, r in 0..3, s in 0..3] = exp(-(x[n,i+r-1,j+s-1 else 0] - x[n,i,j])^2)
    y[n,i,j] = sum(r,s: w[n,i,j,r,s] * x[n,i+r-1,j+s-1 else 0]) / sum(r,s: w[n,i,j,r,s])
  })";
  CompileOptions small_tiles;
  small_tiles.machine.serial_bytes = 0;
  for (const CompileOptions& options : {CompileOptions{}, small_tiles}) {
    expect_agreement(bilateral, {{"N", 2}, {"H", 9}, {"W", 37}}, options);
    expect_agreement(bilateral, {{"N", 1}, {"H", 4}, {"W", 300}}, options);
  }
  DimValues dims = {{"N", 2}, {"H", 9}, {"W", 37}};
  Program backward = backward_program(derive(parse_op(bilateral), {}).program);
  const runtime::KernelSpec spec = only_spec(backward, dims);
  std::set<std::vector<Id>> domains;
  std::set<Id> exponentials;
  for (const runtime::SpecMember& m : spec.members) {
    if (!m.reduced.empty()) domains.insert(m.reduced);
    for (Id id : reachable(*spec.arena, m.body))
      if ((*spec.arena)[id].op == Op::exp) exponentials.insert(id);
  }
  EXPECT_EQ(domains.size(), 1u);
  EXPECT_EQ(exponentials.size(), 1u);
}

}  // namespace
}  // namespace xhat::tiles_test
