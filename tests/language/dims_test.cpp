#include "expr/index/dims.h"

#include <gtest/gtest.h>

#include "tests/helpers/error_of.h"

namespace xhat::dims_test {
namespace {

using testing::error_of;

#define EXPECT_MENTIONS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Dims, SolvedFromPlainAndLinearExtents) {
  Program p = parse_op("op f(x: f32[N,2*C], y: f32[H+1]) -> (z) { z[n,c,h] = x[n,c] + y[h] }");
  DimValues dims = solve_dims(p, {{"x", {3, 10}}, {"y", {8}}});
  EXPECT_EQ(dims, (DimValues{{"N", 3}, {"C", 5}, {"H", 7}}));
  EXPECT_EQ(shape_of(p, *p.find("z"), dims), (std::vector<int64_t>{3, 10, 8}));
  EXPECT_TRUE(free_dims(p).empty());
}

TEST(Dims, ProductsSayTheDimThatNothingElseDoes) {
  Program p = parse_op("op f(x: f32[N,G*C], w: f32[G*K,C]) -> (y) { y[n, o in 0..G*K] = sum(c in 0..C: w[o,c]*x[n,o/K*C+c]) }");
  EXPECT_EQ(solve_dims(p, {{"x", {3, 10}}, {"w", {6, 5}}}), (DimValues{{"N", 3}, {"C", 5}, {"G", 2}, {"K", 3}}));
  const std::string e = error_of([&] { solve_dims(p, {{"x", {3, 11}}, {"w", {6, 5}}}); });
  EXPECT_MENTIONS(e, "the value of dim");
  Program two = parse_op("op f(x: f32[G*C]) -> (y) { y[g in 0..G, c in 0..C] = x[g*C+c] }");
  EXPECT_EQ(solve_dims(two, {{"x", {6}}}, {{"C", 2}}).at("G"), 3);
  EXPECT_MENTIONS(error_of([&] { solve_dims(two, {{"x", {6}}}); }), "--dims");
}

TEST(Dims, DefinedDimsAreComputed) {
  Program p = parse_op(R"(op f(x: f32[H]) -> (y) {
    dim OH = (H + 2 - 3)/2 + 1
    y[i in 0..OH] = x[2*i else 0]
  })");
  EXPECT_EQ(solve_dims(p, {{"x", {8}}}).at("OH"), 4);
  EXPECT_EQ(solve_dims(p, {{"x", {7}}}).at("OH"), 4);
  EXPECT_EQ(shape_of(p, *p.find("y"), solve_dims(p, {{"x", {8}}})), (std::vector<int64_t>{4}));
}

TEST(Dims, FreeDimsMustBeGiven) {
  Program p = parse_op("op f(x: f32[N]) -> (y) { y[n, k in 0..K] = x[n] }");
  EXPECT_EQ(free_dims(p), std::vector<std::string>{"K"});
  EXPECT_EQ(solve_dims(p, {{"x", {3}}}, {{"K", 2}}).at("K"), 2);
  std::string e = error_of([&] { solve_dims(p, {{"x", {3}}}); });
  EXPECT_MENTIONS(e, "op f");
  EXPECT_MENTIONS(e, "dim K");
  EXPECT_MENTIONS(e, "--dims K=");
}

TEST(Dims, DisagreementNamesBothTensors) {
  Program p = parse_op("op add(y: f32[N,4], x: f32[N,4]) -> (z) { z[n,k] = x[n,k] + y[n,k] }");
  std::string e = error_of([&] { solve_dims(p, {{"y", {5, 4}}, {"x", {3, 4}}}); });
  EXPECT_MENTIONS(e, "op add");
  EXPECT_MENTIONS(e, "x has shape [3,4], so N = 3 in its dimension 0");
  EXPECT_MENTIONS(e, "y, with shape [5,4], says N = 5");
  e = error_of([&] { solve_dims(p, {{"y", {3, 5}}, {"x", {3, 4}}}); });
  EXPECT_MENTIONS(e, "y has shape [3,5], but its dimension 1 must be 4");
}

TEST(Dims, OtherErrors) {
  Program p = parse_op("op f(x: f32[N,2*C]) -> (y) { y[n,c] = x[n,c] }");
  std::string rank = error_of([&] { solve_dims(p, {{"x", {3}}}); });
  EXPECT_MENTIONS(rank, "x has shape [3], but is declared with 2 dimensions");
  std::string odd = error_of([&] { solve_dims(p, {{"x", {3, 5}}}); });
  EXPECT_MENTIONS(odd, "dimension 1 is 2*C, which is 5 for no C >= 0");
  std::string given = error_of([&] { solve_dims(p, {{"x", {3, 4}}}, {{"N", 7}}); });
  EXPECT_MENTIONS(given, "N = 7 was given, but x, with shape [3,4], says N = 3");
  std::string unknown = error_of([&] { solve_dims(p, {}, {{"Q", 7}}); });
  EXPECT_MENTIONS(unknown, "there is no dim Q; its dims are N, C");
  std::string negative = error_of([&] { solve_dims(p, {}, {{"N", -1}}); });
  EXPECT_MENTIONS(negative, "dim N = -1 is negative");
  std::string parameter = error_of([&] { solve_dims(p, {{"q", {1}}}); });
  EXPECT_MENTIONS(parameter, "there is no parameter q");
}

TEST(Dims, PreconditionsAreChecked) {
  Program p = parse_op("op f(x: f32[N,C]) -> (y) { y[n] = x[n,0] + x[n,2] }");
  EXPECT_NO_THROW(solve_dims(p, {{"x", {2, 3}}}));
  std::string e = error_of([&] { solve_dims(p, {{"x", {2, 2}}}); });
  EXPECT_MENTIONS(e, "op f");
  EXPECT_MENTIONS(e, "C = 2");
}

TEST(Dims, NegativeExtents) {
  Program p = parse_op("op f(x: f32[H]) -> (y) { y[i in 0..H-2] = x[i+1] }");
  EXPECT_EQ(shape_of(p, *p.find("y"), solve_dims(p, {{"x", {2}}})), (std::vector<int64_t>{0}));
  std::string e = error_of([&] { solve_dims(p, {{"x", {1}}}); });
  EXPECT_MENTIONS(e, "op f");
  EXPECT_MENTIONS(e, "H = 1");
}

TEST(Dims, ZeroSizesAreFine) {
  Program p = parse_op("op f(x: f32[N,C]) -> (y) { y[n] = sum(c: x[n,c]) }");
  EXPECT_EQ(solve_dims(p, {{"x", {0, 3}}}), (DimValues{{"N", 0}, {"C", 3}}));
}

TEST(Dims, SamplesMeetPreconditionsAndKeepGiven) {
  Program p = parse_op("op f(x: f32[N,C,2*W]) -> (y) { y[n,w] = x[n,8,w] }");
  for (uint64_t seed = 0; seed < 20; ++seed) {
    DimValues dims = sample_dims(p, seed, {{"N", 2}});
    EXPECT_EQ(dims.at("N"), 2);
    EXPECT_GE(dims.at("C"), 9);
    EXPECT_LE(dims.at("C"), 40);
    EXPECT_EQ(dims, sample_dims(p, seed, {{"N", 2}}));
  }
}

TEST(Dims, SamplesDifferWherePossible) {
  Program p = parse_op("op f(x: f32[A,B,C]) -> (y) { y[a,b,c] = x[a,b,c] }");
  for (uint64_t seed = 0; seed < 10; ++seed) {
    DimValues d = sample_dims(p, seed);
    EXPECT_NE(d.at("A"), d.at("B"));
    EXPECT_NE(d.at("B"), d.at("C"));
    EXPECT_NE(d.at("A"), d.at("C"));
    for (const auto& [name, value] : d) EXPECT_EQ(value % 2, 1) << name;
  }
}

TEST(Dims, ExtentsOverAllIntegerOperations) {
  Arena a;
  Id n = a.dim("N"), two = a.integer(2), seven = a.integer(7);
  DimValues dims = {{"N", 5}};
  EXPECT_EQ(evaluate_extent(a, a.div(a.sub(n, seven), two), dims), -1);
  EXPECT_EQ(evaluate_extent(a, a.binary(Op::mod, a.sub(n, seven), seven), dims), 5);
  EXPECT_EQ(evaluate_extent(a, a.binary(Op::minimum, n, seven), dims), 5);
  EXPECT_EQ(evaluate_extent(a, a.select(a.binary(Op::lt, n, seven), two, n), dims), 2);
  EXPECT_THROW(evaluate_extent(a, n, {}), Error);
}

TEST(Dims, ExtentsThroughFloats) {
  Arena a;
  Id n = a.dim("N"), x = a.cast(DType::f32, n), half = a.constant(DType::f32, 0.5);
  auto whole = [&](Id e) { return evaluate_extent(a, a.cast(DType::i64, e), {{"N", 17}}); };
  EXPECT_EQ(whole(a.unary(Op::sqrt, x)), 4);
  EXPECT_EQ(whole(a.mul(x, half)), 8);
  EXPECT_EQ(whole(a.unary(Op::neg, a.mul(x, half))), -8);
  EXPECT_EQ(whole(a.select(a.binary(Op::lt, x, half), x, half)), 0);
}

}  // namespace
}  // namespace xhat::dims_test
