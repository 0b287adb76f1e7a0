// Relations as text, and what tiles of a consumer compute again of a producer.
#include "fusion/relations/needs.h"

#include <gtest/gtest.h>

namespace xhat::fusion::needs_test {
namespace {

// "y <- x[n,d], x[n,0:D]" per output.
std::string needs_of(const std::string& text) {
  Program p = parse_op(text);
  std::string all;
  for (const Needs& n : needs(p)) {
    std::string line;
    for (const Relation& r : n.relations) line += (line.empty() ? "" : ", ") + needed_text(p, r);
    all += (all.empty() ? "" : "; ") + n.element + " <- " + line;
  }
  return all;
}

struct Row {
  const char* text;
  const char* needs;
};

const Row kRows[] = {
    {"op f(A: f32[8,8], B: f32[8,8], D: f32[8,8]) -> (E) { C[i,j] = sum(k: A[i,k]*B[j,k]); E[i,j] = sum(k: C[i,k]*D[j,k]) }",
     "E[i,j] <- A[i,0:8], B[0:8,0:8], D[j,0:8]"},
    {"op f(x: f32[N,D], w: f32[D]) -> (y, s) { y[n,d] = x[n,d]*w[d]; s = sum(n, d: y[n,d]) }",
     "y[n,d] <- x[n,d], w[d]; s <- x[0:N,0:D], w[0:D]"},
    {"op f(x: f32[N], w: f32[3]) -> (y) { y[i in 0..N-2] = sum(r: x[i+r]*w[r]) }", "y[i] <- x[i:i + 3], w[0:3]"},
    {"op f(x: f32[N], w: f32[3]) -> (y) { y[i in 0..N] = sum(r: x[i+r-1 else 0]*w[r]) }", "y[i] <- x[i - 1:i + 2], w[0:3]"},
    {"op f(x: f32[2*N]) -> (y) { y[i in 0..N] = x[2*i+1] }", "y[i] <- x[2 * i + 1]"},
    {"op f(x: f32[2*N]) -> (y) { y = sum(i in 0..N: x[2*i]) }", "y <- x[0:2 * N - 1:2]"},
    {"op f(x: f32[T]) -> (y) { y[t in 0..T] = sum(s in 0..t+1: x[s]) }", "y[t] <- x[0:t + 1]"},
    {"op f(x: f32[N]) -> (y) { y[i in 0..N] = if i > 0 then x[i-1] else 0 }", "y[i] <- x[i - 1] if 0 < i"},
    {"op f(x: f32[N]) -> (y) { y[i] = sum(j if j <= i: x[i]*x[j]) }", "y[i] <- some of x[i], some of x[0:N]"},
    {"op f(t: f32[V,D], ids: i32[B]) -> (y) { y[b,d] = t[ids[b],d] }", "y[b,d] <- t[?,d], ids[b]"},
    {"op f(x: f32[N,M]) -> (y) { y[j, i in 0..N] = x[N-1-i,j] }", "y[j,i] <- x[N - i - 1,j]"},
};

TEST(Needs, AsText) {
  for (const Row& row : kRows) EXPECT_EQ(needs_of(row.text), row.needs) << row.text;
}

TEST(Needs, TilesOfAConsumer) {
  Program p = parse_op(kRows[0].text);
  auto found = producer_tiles(p, {});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(p.tensors[found[0].producer].name, "C");
  EXPECT_FALSE(found[0].obstacle.has_value());
  auto at = [&](std::vector<int64_t> tile) {
    for (const Granularity& g : found[0].rows)
      if (g.tile == tile) return g;
    return Granularity{};
  };
  EXPECT_EQ(at({1, 1}).elements, 8);
  EXPECT_EQ(at({1, 1}).computed, 8.0);
  EXPECT_EQ(at({1, 8}).elements, 8);
  EXPECT_EQ(at({1, 8}).computed, 1.0);
  EXPECT_EQ(at({8, 8}).elements, 64);
  // Two convolutions: a tile of 8 x 8 needs 10 x 10 of the first.
  Program two = parse_op(R"(op f(A: f32[N,N], v: f32[3,3], w: f32[3,3]) -> (E) {
    C[i in 0..N-2, j in 0..N-2] = sum(r, s: A[i+r, j+s] * v[r,s])
    E[i in 0..N-4, j in 0..N-4] = sum(r, s: C[i+r, j+s] * w[r,s])
  })");
  found = producer_tiles(two, {{"N", 260}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(at({8, 8}).elements, 100);
  EXPECT_EQ(at({32, 32}).elements, 34 * 34);
}

}  // namespace
}  // namespace xhat::fusion::needs_test
