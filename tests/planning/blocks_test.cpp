// Quotient and remainder of an index as axes: where, and that values stay.
#include "fusion/plan/blocks.h"

#include <gtest/gtest.h>

#include "fusion/plan/quotient_ranges.h"
#include "tests/helpers/golden.h"

namespace xhat::blocks_test {
namespace {

using namespace xhat::testing;

// The first definition of what is made, if there are more of them.
std::string made_of(const std::string& text, const DimValues& sizes) {
  const Program p = infer_program(parse_op(text)), numbers = with_numbers_as_divisors(p, sizes), made = blocks_as_axes(numbers, sizes, {});
  verify(made);
  const Arrays data = random_data(p, sizes, 4);
  EXPECT_EQ(difference(evaluate_on(p, data, sizes), evaluate_on(made, data, sizes), 0), "") << print(made);
  if (made.forward.definitions.size() == p.forward.definitions.size()) return "";
  const std::string printed = print(made);
  const size_t begin = printed.find("\n  ") + 3;
  return printed.substr(begin, printed.find('\n', begin) - begin);
}

TEST(Blocks, OfPatches) {
  EXPECT_EQ(made_of("op f(w: f32[K,C,4], dy: f32[N,H,K]) -> (g) { g[n,c,i in 0..4*H] = sum(k: w[k,c,i%4]*dy[n,i/4,k]) }",
                    {{"K", 9}, {"C", 2}, {"N", 2}, {"H", 5}}),
            "g_blocks[n, i_1 in 0..5, c, i_2] = sum(k: w[k,c,i_2] * dy[n,i_1,k])");
}

TEST(Blocks, OfGroups) {
  EXPECT_EQ(
      made_of("op f(w: f32[C,12], x: f32[N,4*C]) -> (y) { y[n,o in 0..12] = sum(c in 0..C: w[c,o]*x[n,o/3*C+c]) }", {{"C", 9}, {"N", 30}}),
      "")
      << "vectors run along the outputs of all groups";
  EXPECT_EQ(made_of("op f(w: f32[G*K,C], x: f32[N,G*C], u: f32[K]) -> (y) { y[n, o in 0..G*K] = sum(c in 0..C: w[o,c]*x[n,o/K*C+c]) }",
                    {{"G", 2}, {"K", 4}, {"C", 9}, {"N", 3}}),
            "y_blocks[n, o_1 in 0..2, o_2 in 0..4] = sum(c: w[o_1*4+o_2,c] * x[n,o_1*C+c])");
}

TEST(Blocks, OfWhatIsTheSameInABlock) {
  EXPECT_EQ(made_of("op f(x: f32[N,K]) -> (y) { y[i in 0..3*N] = sum(k: x[i/3,k]) }", {{"N", 4}, {"K", 9}}),
            "y_blocks[i_1 in 0..4] = sum(k: x[i_1,k])");
}

TEST(Blocks, OfPartsSideBySide) {
  EXPECT_EQ(made_of("op f(s: f32[6,T], z: f32[T,12]) -> (y) { y[e in 0..12] = sum(t if 0 <= (e-4)/2: s[(e-4)/2,t else 0]*z[t,(e-4)%2]) }",
                    {{"T", 9}}),
            "y_blocks[e_1 in 0..4, e_2 in 0..2] = sum(t: s[e_1,t else 0] * z[t,e_2])")
      << "blocks without terms are left out";
  EXPECT_EQ(made_of("op f(s: f32[4,T], z: f32[T,12]) -> (y) {\n"
                    " y[e in 0..12] = sum(t if 0 <= (e-4)/2 && (e-4)/2 < 3: s[(e-4)/2,t else 0]*z[t,(e-4)%2])\n}",
                    {{"T", 9}}),
            "y_blocks[e_1 in 0..3, e_2 in 0..2] = sum(t: s[e_1,t else 0] * z[t,e_2])");
}

// Gradients of causal attention whose heads lie side by side: a triangle is no window.
TEST(Blocks, OfHeadsInATriangle) {
  EXPECT_EQ(made_of("op f(p: f32[3,T,T], o: f32[T,3*D]) -> (g) { g[t, e in 0..3*D] = sum(u in t..T: p[e/D,u,t]*o[u,e/D*D+e%D]) }",
                    {{"T", 70}, {"D", 8}}),
            "g_blocks[t, e_1, e_2 in 0..8] = sum(u in t..T: p[e_1,u,t] * o[u,e_1*D+e_2])");
}

// The columns of a product that leap from head to head, as vectors along them would.
TEST(Blocks, OfHeadsThatLieApart) {
  EXPECT_EQ(made_of("op f(y: f32[N,T,6], o: f32[N,3,T,8]) -> (g) { g[d, j in 0..24] = sum(n,t: y[n,t,d]*o[n,j/8,t,j%8]) }",
                    {{"N", 2}, {"T", 9}}),
            "g_blocks[d,j_1,j_2] = sum(n,t: y[n,t,d] * o[n,j_1,t,j_2])");
  EXPECT_EQ(made_of("op f(y: f32[N,T,6], o: f32[N,T,3,8]) -> (g) { g[d, j in 0..24] = sum(n,t: y[n,t,d]*o[n,t,j/8,j%8]) }",
                    {{"N", 2}, {"T", 9}}),
            "")
      << "these lie side by side";
}

TEST(Blocks, OthersStay) {
  const DimValues sizes = {{"B", 2}, {"T", 12}, {"K", 9}};
  EXPECT_EQ(made_of("op f(q: f32[B,6,T,K], k: f32[B,3,T,K]) -> (z) { z[b,h,t,u] = sum(d: q[b,h,t,d]*k[b,h/2,u,d]) }", sizes), "")
      << "a product as it is";
  EXPECT_EQ(made_of("op f(x: f32[T,K], w: f32[3,4]) -> (y) { y[t] = sum(k: x[t,k]*w[t/4,t%4 else 0]) }", sizes), "")
      << "a walk along one operand";
  EXPECT_EQ(made_of("op f(x: f32[T,2]) -> (y) { y[t in 0..T] = sum(k: x[t/2,k]) }", sizes), "") << "few terms";
  EXPECT_EQ(made_of("op f(x: f32[T,K], w: f32[3]) -> (y) { y[t in 0..T] = sum(k: x[t/5,k]*w[t%5 else 0]) }", sizes), "")
      << "no whole blocks";
  EXPECT_EQ(made_of("op f(x: f32[T,K]) -> (y) { y[t in 0..T] = sum(k: x[t/2,k]*f32(t)) }", sizes), "") << "the index is a value";
}

}  // namespace
}  // namespace xhat::blocks_test
