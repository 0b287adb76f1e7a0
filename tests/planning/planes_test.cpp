// Tensors of short rows in planes: which are copied, and that values stay.
#include "fusion/plan/planes.h"

#include <gtest/gtest.h>

#include "tests/helpers/golden.h"

namespace xhat::planes_test {
namespace {

using namespace xhat::testing;

// Copies there and back.
size_t copies_in(const std::string& op, const DimValues& sizes) {
  const Program p = infer_program(parse_op(op));
  const Program made = short_rows_as_planes(p, sizes, {});
  verify(made);
  const Arrays data = random_data(p, sizes, 4);
  EXPECT_EQ(difference(evaluate_on(p, data, sizes), evaluate_on(made, data, sizes), 0), "") << print(made);
  return made.forward.definitions.size() - p.forward.definitions.size();
}

size_t copies(const std::string& body, const DimValues& sizes = {{"N", 150}, {"M", 140}}) {
  return copies_in("op f(x: f32[N,3], z: f32[M,3], w: f32[N,M]) -> (y) { " + body + " }", sizes);
}

TEST(Planes, OfPointsThatPairsRead) {
  EXPECT_EQ(copies("y[i,j] = sum(d: (x[i,d]-z[j,d])^2)"), 1u) << "z";
  EXPECT_EQ(copies("y[i] = sum(j: exp(x[i,0]*z[j,0]-x[i,1]*z[j,1]))"), 1u) << "z";
  EXPECT_EQ(copies("y[i,d] = sum(j: w[i,j]*(x[i,d]-z[j,d]))"), 1u) << "z";
  EXPECT_EQ(copies("y[j in 0..M,d in 0..3] = sum(i: w[i,j]*(x[i,d]-z[j,d]))"), 2u) << "z, and the results";
  EXPECT_EQ(copies("y[i] = sum(j if j != i && j < 9: w[i,j]*(x[i,0]-z[j,1 else 0]))"), 1u) << "z";
  EXPECT_EQ(copies("y[i] = sum(j in 0..i if j < M: x[j,0]*x[i,1])"), 1u) << "a triangle";
}

// Between definitions that one kernel can have, a copy would keep them apart.
TEST(Planes, CopiesOfInputsComeFirst) {
  const Program p =
      infer_program(parse_op("op f(x: f32[N,3], z: f32[N,3]) -> (y) { s[i,j] = sum(d: (x[i,d]-x[j,d])^2); "
                             "y[i,d] = sum(j: exp(s[i,j])*(z[i,d]-z[j,d])) }"));
  const Program made = short_rows_as_planes(p, {{"N", 150}}, {});
  ASSERT_EQ(made.forward.definitions.size(), 4u) << print(made);
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(made.tensors[made.forward.definitions[i].target()].name.ends_with("_planes")) << print(made);
}

TEST(Planes, OthersStay) {
  EXPECT_EQ(copies("y[i,d] = 2*x[i,d]"), 0u) << "each is read once";
  EXPECT_EQ(copies("y[i] = sum(d: x[i,d]^2)"), 0u) << "each is read once";
  EXPECT_EQ(copies("y[i,j] = sum(d: (x[i,d]-z[j,d])^2)", {{"N", 9}, {"M", 12}}), 0u) << "few points";
  EXPECT_EQ(copies("y[i,j] = x[i,1]*w[i,j]"), 0u) << "the same for all of a row";
}

size_t copies_of_grids(const std::string& body) {
  return copies_in("op f(x: f32[N,K,8], w: f32[O,K,8], v: f32[N,O], u: f32[K,O,8]) -> (y) { " + body + " }", {{"N", 150}, {"K", 16}, {"O", 30}});
}

TEST(Planes, ProductsTakeShortRowsAsOne) {
  EXPECT_EQ(copies_of_grids("y[n,o] = sum(k, g: x[n,k,g]*w[o,k,g])"), 0u);
  EXPECT_EQ(copies_of_grids("y[n,o] = sum(g, k: w[o,k,g]*x[n,k,g])"), 0u) << "axes are summed in any order";
  EXPECT_EQ(copies_of_grids("y[n,k,g] = sum(o: v[n,o]*w[o,k,g])"), 0u);
  EXPECT_EQ(copies_of_grids("y[o,k,g] = sum(n: v[n,o]*x[n,k,g])"), 0u);
  EXPECT_EQ(copies_of_grids("y[o] = sum(n, k, g: x[n,k,g]*w[o,k,g])"), 0u);
}

TEST(Planes, RowsThatDoNotGoOnStayShort) {
  EXPECT_GT(copies_of_grids("y[n,o] = sum(k, g: (x[n,k,g]-w[o,k,g])^2)"), 0u) << "no product: vectors run along one axis";
  EXPECT_GT(copies_of_grids("y[n,o] = sum(k, g in 0..7: x[n,k,g]*w[o,k,g+1])"), 0u) << "a part of each row";
}

}  // namespace
}  // namespace xhat::planes_test
