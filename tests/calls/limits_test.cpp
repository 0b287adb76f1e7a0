// Sizes beyond 32 bits: right, or refused before anything runs.
#include <gtest/gtest.h>

#include "tests/helpers/error_of.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::testing::limits_test {
namespace {

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

CompiledOp inference(const std::string& text, const DimValues& dims) {
  CompileOptions options;
  options.differentiate = false;
  options.dims = dims;
  return compile(parse_op(text), options);
}

// By inference of an op of x: f64[3], without anything written.
std::string refusal(const std::string& statement, const DimValues& dims = {}) {
  const std::string text = "op f(x: f64[3]) -> (y) { " + statement + " }";
  double x[3] = {1, 2, 3}, y = 77;
  CompiledOp op = inference(text, dims);
  std::string said = error_of([&] { op.infer({{"x", TensorView(x, {3})}, {"y", TensorView(&y, {})}}); });
  EXPECT_EQ(y, 77) << statement;
  EXPECT_SAYS(error_of([&] { op.plan(CompiledOp::Phase::infer, dims); }), "2^31-1");
  return said;
}

TEST(RuntimeLimits, LongLoopsAreRefused) {
  const DimValues large = {{"N", 1 << 20}};
  for (const std::string reduction : {"sum(i in 0..N*4096: f64(i))", "max(i in 0..N*2048: x[i%3])", "prod(i in 1..N*4096: f64(i))",
                                       "sum(i in 0-N..N*4096 if x[i%3] < 9: x[i%3])", "f64(argmax(i in 0..4294967296*(1+N-N): f64(i)))"})
    EXPECT_SAYS(refusal("y = 0*x[0] + " + reduction, large), "axis i of ");
  EXPECT_SAYS(refusal("y = sum(i in 0..2147483653: x[i % 3])"), "axis i of y runs from 0 to 2147483653; kernels take up to 2^31-1 steps");
  EXPECT_SAYS(refusal("y = sum(i in 0..2147483648: x[i % 3])"), "axis i of y runs from 0 to 2147483648");
  // As long as another axis lets it be.
  EXPECT_SAYS(error_of([] {
                double x[3] = {1, 2, 3}, y = 77;
                CompiledOp op = inference("op f(x: f64[3]) -> (y) { y = sum(j in 0..3, i in 0..j*2147483648: x[i%3]) }", {});
                op.infer({{"x", TensorView(x, {3})}, {"y", TensorView(&y, {})}});
              }),
              "2^31-1 steps");
}

TEST(RuntimeLimits, LargeTensorsAreRefused) {
  auto said = [](const std::string& text, const DimValues& dims) {
    return error_of([&] { inference(text, dims).prepare(CompiledOp::Phase::infer, dims); });
  };
  const DimValues n = {{"N", 1 << 16}};
  EXPECT_SAYS(said("op f(x: f32[N]) -> (y) { y[i,j in 0..N] = x[i] }", n), "y would have 4294967296 elements, shape [65536,65536]");
  EXPECT_SAYS(said("op f(x: f32[N,N]) -> (y) { y[i] = sum(j: x[i,j]) }", n), "x would have 4294967296 elements");
  EXPECT_SAYS(said("op f(x: u8[N,N/2,1]) -> (y) { y[i] = sum(j: x[i,j,0]) }", n), "x would have 2147483648 elements");
  EXPECT_SAYS(said("op f(x: f32[65537*N]) -> (y) { y[i] = 2*x[i] }", n), "x would have 4295032832 elements");
  // What is never a tensor may be as large as it likes.
  EXPECT_EQ(said("op f(x: f32[N]) -> (y) { s[i,j] = x[i]*x[j]\n y[i] = sum(j: s[i,j]) }", n), "no error");
  // An empty one has no elements, but its other extents are loops.
  EXPECT_SAYS(said("op f(x: f32[K,N*65537]) -> (y) { y[i,j] = 2*x[i,j] }", {{"N", 1 << 16}, {"K", 0}}), "2^31-1");
}

TEST(RuntimeLimits, SizesBeyond64Bits) {
  Program p = parse_op("op f(x: f32[N], z: f32[K]) -> (y) { y[i, j in 0..N*N*N*K] = x[i] + z[0] }");
  EXPECT_SAYS(error_of([&] { solve_dims(p, {}, {{"N", 2'000'000}, {"K", 3}}); }), "dimension 1 of y: a size leaves 64 bits with K = 3, N = 2000000");
  EXPECT_EQ(error_of([&] { solve_dims(p, {}, {{"N", 200}, {"K", 3}}); }), "no error");
  // Of a branch that is not taken nothing is said.
  p = parse_op("op f(x: f32[N]) -> (y) { dim M = if N < 10 then N else N*N*N*N*N*N*N\n y[i in 0..M] = x[0] }");
  EXPECT_EQ(error_of([&] { solve_dims(p, {}, {{"N", 9}}); }), "no error");
  EXPECT_SAYS(error_of([&] { solve_dims(p, {}, {{"N", 1000}}); }), "leaves 64 bits with N = 1000");
}

// Positions that need more than 32 bits, at sizes that do not.
TEST(RuntimeLimits, LargePositionsAreRight) {
  const char* statements[] = {
      "y[i in 0..N] = f64(i*i*i*1000) + x[0]",
      "y[i in 0..N] = x[(i*4398046511104)/4398046511104 % 3]",
      "y[i in 0..N] = x[i*1099511627776 % 3298534883328 / 1099511627776]",
      "y[i in 0..N] = sum(k in 3000000000..3000000007: f64(k) * x[k%3]) + f64(i)",
      "y[i in 0..N] = x[(i*i*i*i*i*i/1024) % 3]",
      "y[i in 0..N] = if i*i*i*i*i*i/1024 > 1000000000 then x[1] else x[0]",
      "y[i in 0..N] = x[clamp(i*100000000000 - 1000000000000, 0, 2)]",
      "y[i in 0..N] = f64(i32(i*100000000)) + x[0]",
      "y[i in 0..N] = f64(i32(i)*i32(i)*i32(10000000)) + x[0]",
      "y[i in 0..N] = x[clamp(i32(i)*i32(i)*i32(10000000), i32(0), i32(2))]",
  };
  const DimValues dims = {{"N", 300}};
  for (const char* statement : statements) {
    SCOPED_TRACE(statement);
    Program p = parse_op(std::string("op f(x: f64[3]) -> (y) { ") + statement + " }");
    Arrays in = {{"x", array_of(DType::f64, {3}, {1.5, -2, 7})}};
    CompileOptions options;
    options.differentiate = false;
    options.dims = dims;
    EXPECT_EQ(difference(evaluate(p, in, dims), run_infer(compile(p, options), in, dims), 1e-12), "");
  }
}

}  // namespace
}  // namespace xhat::testing::limits_test
