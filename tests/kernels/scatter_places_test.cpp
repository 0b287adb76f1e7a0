// Scatters whose terms are added one by one (Lowering::scatter): to places side by side, to short rows, with dear places and terms.
#include <gtest/gtest.h>

#include "tests/helpers/golden.h"
#include "tests/helpers/lowered_code.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::scatter_places_test {
namespace {

using namespace xhat::testing;

constexpr const char* kPlane = R"(op f(x: f32[C,N], p: i32[N], q: i32[N], z: f32[H,W]) -> (y) {
  y[c, h in 0..H, w in 0..W] = sum(n if i64(p[n]) == h && i64(q[n]) + 1 == w: x[c,n]*z[0,0]) })";
constexpr const char* kDearPlane = R"(op f(x: f32[C,N], p: f32[N], q: f32[N], z: f32[H,W]) -> (y) {
  y[c, h in 0..H, w in 0..W] = sum(n,r in 0..2 if i64(floor(sigmoid(p[n])*6))+r == h && i64(floor(sigmoid(q[n])*8)) == w: x[c,n]*z[0,0]) })";
constexpr const char* kLine =
    "op f(x: f64[N,M], p: i32[N,M], z: f64[H]) -> (y) { y[h in 0..H] = sum(n,m if i64(p[n,m]) == h: exp(x[n,m])*z[0]) }";

// Each row has places of its own, and what is dear of a term is the same for all of a short row.
constexpr const char* kPlaceInRow = R"(op f(x: f32[B,N], p: f32[B,N], u: f32[B,N,D], z: f32[H]) -> (y) {
  y[b, h in 0..H, d] = sum(n if i64(floor(sigmoid(p[b,n])*9))-1 == h: exp(x[b,n])*u[b,n,d]*z[0]) })";
constexpr const char* kDearInRow = R"(op f(x: f32[B,N], p: f32[B,N], u: f32[B,C,N], z: f32[H]) -> (y) {
  y[b, c, h in 0..H] = sum(n if i64(floor(sigmoid(p[b,n])*9))-1 == h && x[b,n] < 1: exp(x[b,n])*tanh(u[b,c,n]) - z[0]) })";

void expect_agreement(const char* text, const DimValues& dims) {
  SCOPED_TRACE(text + dims_text(dims));
  const Program op = parse_op(text);
  Arrays data = random_data(op, dims, 9);
  for (const char* place : {"p", "q"})
    if (data.contains(place) && data.at(place).type == DType::i32)  // some outside, too
      for (size_t i = 0; i < data.at(place).size(); ++i) data.at(place).integers[i] = static_cast<int64_t>(i * 31 % 11) - 2;
  const Arrays right = evaluate_on(op, data, dims);
  Arrays one;
  for (int threads : {1, 2}) {
    CompileOptions options;
    options.machine.serial_bytes = 16;
    options.threads = threads;
    const Arrays found = run_infer(compile(op, options), data, dims);
    EXPECT_EQ(difference(right, found, 1e-5), "");
    if (threads == 1) one = found;
    EXPECT_EQ(found.at("y").reals, one.at("y").reals) << threads << " threads";
  }
}

TEST(ScatterByPlaces, Values) {
  for (int64_t n : {0, 1, 70, 1001}) {
    expect_agreement(kPlane, {{"C", 5}, {"N", n}, {"H", 7}, {"W", 9}});
    expect_agreement(kDearPlane, {{"C", 5}, {"N", n}, {"H", 7}, {"W", 9}});
    expect_agreement(kLine, {{"N", n}, {"M", 3}, {"H", 8}});
    for (int64_t b : {1, 2, 37}) {
      expect_agreement(kPlaceInRow, {{"B", b}, {"N", n}, {"D", 5}, {"H", 8}});
      expect_agreement(kDearInRow, {{"B", b}, {"N", n}, {"C", 3}, {"H", 8}});
    }
  }
}

// Rows of every length: written out, in whole vectors, in vectors with a rest.
TEST(ScatterByPlaces, ShortRows) {
  for (int64_t d : {1, 2, 3, 4, 6, 7, 8, 12, 15, 16, 20, 35})
    for (int64_t n : {0, 3, 90, 1001}) {
      expect_agreement(
          "op f(x: f32[N,M,D], p: i32[N,M], z: f32[H]) -> (y) { y[h in 0..H, d] = sum(n,m if i64(p[n,m]) == h: x[n,m,d]*z[0]) }",
          {{"N", n}, {"M", 3}, {"D", d}, {"H", 9}});
      expect_agreement(
          "op f(x: f32[N,D], p: i32[N], q: i32[N], z: f32[H]) -> (y) { y[h in 0..H, d, e in 0..2] = sum(n if i64(p[n]) == h && q[n] > 0: "
          "exp(x[n,d])*x[n,(d+e)%D]*z[0]) }",
          {{"N", n}, {"D", d}, {"H", 9}});
    }
}

TEST(ScatterByPlaces, OtherReductions) {
  for (const char* reduction : {"prod", "max", "min"})
    for (const char* term : {"x[n]", "exp(x[n])"})
      expect_agreement((std::string("op f(x: f32[N], p: i32[N], q: i32[N], z: f32[H]) -> (y) { y[h in 0..H] = z[h]+tanh(") + reduction +
                        "(n if i64(p[n]) == h && q[n] > 1: " + term + ")) }")
                           .c_str(),
                       {{"N", 300}, {"H", 9}});
}

std::string code_of(const char* op, const DimValues& dims) {
  Halide::Target target = runtime::target_of(CpuLevel::avx512);
  target.set_feature(Halide::Target::JIT);
  return lowered_code(only_spec(infer_program(parse_op(op)), dims), target);
}

TEST(ScatterByPlaces, DearPlacesAreComputedOnceForAllChannels) {
  const std::string code = code_of(kDearPlane, {{"C", 4}, {"N", 100}, {"H", 8}, {"W", 8}});
  EXPECT_NE(code.find("produce xh_places"), std::string::npos);
}

// One number at a time a row of 500 places took 1.9 ms where tables of each row take 0.4 (the gradient of a spline's nodes).
TEST(ScatterByPlaces, EachRowHasItsPlacesInVectors) {
  const std::string code = code_of(kPlaceInRow, {{"B", 4}, {"N", 100}, {"D", 5}, {"H", 8}});
  EXPECT_NE(code.find("produce xh_places"), std::string::npos);
  EXPECT_NE(code.find("produce xh_part"), std::string::npos) << "the exponential, once for a row";
  EXPECT_EQ(code.find("produce xh_terms"), std::string::npos) << "what is left is two products";
}

}  // namespace
}  // namespace xhat::scatter_places_test
