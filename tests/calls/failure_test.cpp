// Argmax over nothing has no answer: kernels say so where the evaluator does, and nowhere else, before anything is written.
#include <gtest/gtest.h>

#include "ad/reverse/gradient.h"
#include "expr/index/without_points.h"
#include "tests/helpers/error_of.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::testing::failure_test {
namespace {

Array f32(std::vector<int64_t> shape, std::vector<double> values) { return array_of(DType::f32, std::move(shape), std::move(values)); }
Array i32(std::vector<int64_t> shape, std::vector<double> values) { return array_of(DType::i32, std::move(shape), std::move(values)); }

// The same outcome by the evaluator, inference, and forward with backward: values, or an error that says all of this
// ("": none).
void expect_outcome(const std::string& text, const Arrays& in, const std::string& error, DimValues dims = {}) {
  SCOPED_TRACE(text);
  Program p = parse_op(text);
  for (auto& [name, value] : solve_dims(p, shapes_of(in), dims)) dims[name] = value;
  Arrays want;
  std::string reference = error_of([&] { want = evaluate(p, in, dims); }, "");
  EXPECT_EQ(reference.empty(), error.empty()) << reference;

  CompileOptions options;
  options.dims = dims;
  CompiledOp op = compile(p, options);
  Arrays got;
  std::string infer = error_of([&] { got = run_infer(op, in, dims); }, "");
  if (error.empty()) {
    EXPECT_EQ(infer, "");
    EXPECT_EQ(difference(want, got, 1e-6), "");
  }
  EXPECT_NE(infer.find(error), std::string::npos) << infer << print(infer_program(op.program()));

  const Program derived = readable_at(gradient(p), dims);
  Arrays data = in;
  for (TensorId t : derived.cotangents) {
    Array dy = zeros(derived.tensor(t).type, shape_of(derived, t, dims));
    for (size_t i = 0; i < dy.reals.size(); ++i) dy.reals[i] = 1 + 0.5 * static_cast<double>(i);
    data[derived.tensor(t).name] = dy;
  }
  std::string both = error_of([&] { got = run_both(op, data, dims); }, "");
  EXPECT_NE(both.find(error), std::string::npos) << both;
  if (!error.empty()) return;
  EXPECT_EQ(both, "");
  EXPECT_EQ(difference(evaluate(derived, data, dims), got, 1e-5), "") << print(op.program());
}

TEST(RuntimeFailure, ArgmaxOverADimensionWithoutElements) {
  const char* text = "op f(x: f32[N,K], z: f32[N]) -> (y) { y[n] = z[n] * f32(argmax(k: x[n,k])) }";
  expect_outcome(text, {{"x", f32({2, 3}, {1, 5, 2, 7, 5, 6})}, {"z", f32({2}, {1, 2})}}, "");
  expect_outcome(text, {{"x", f32({2, 0}, {})}, {"z", f32({2}, {1, 2})}}, "op f: y[0] needs argmax over nothing");
  expect_outcome(text, {{"x", f32({0, 0}, {})}, {"z", f32({0}, {})}}, "");
}

TEST(RuntimeFailure, ArgmaxOfWhatNoElementMeets) {
  const char* text = "op f(x: f32[N,K], z: f32[N]) -> (y, best) { best[n] = argmin(k if x[n,k] > 0: x[n,k]); y[n] = z[n] * f32(best[n]) }";
  Arrays in = {{"x", f32({3, 2}, {1, 5, -2, 7, 5, -6})}, {"z", f32({3}, {1, 2, 3})}};
  expect_outcome(text, in, "");
  in["x"] = f32({3, 2}, {1, 5, -2, 7, -5, -6});
  expect_outcome(text, in, "op f: best[2] needs argmin over nothing");
}

// One that nobody asks for is none.
TEST(RuntimeFailure, ArgmaxBehindACondition) {
  const char* text =
      "op f(x: f32[N,K], z: f32[N]) -> (y) { y[n] = if z[n] > 0 then x[n, argmax(k if x[n,k] < z[n]: x[n,k])] else z[n] }";
  Arrays in = {{"x", f32({2, 2}, {1, 2, 3, 4})}, {"z", f32({2}, {1.5, -1})}};
  expect_outcome(text, in, "");
  in["z"] = f32({2}, {1.5, 3});
  expect_outcome(text, in, "op f: y[1] needs argmax over nothing");
  expect_outcome("op f(x: f32[K], z: f32[N]) -> (y) { y[n] = if 0 < K then z[n] * f32(argmax(k: x[k])) else z[n] }",
                 {{"x", f32({0}, {})}, {"z", f32({2}, {1, 2})}}, "");
}

TEST(RuntimeFailure, ArgmaxInsideReductions) {
  const char* text = "op f(x: f32[N], p: f32[N]) -> (y) { y = sum(b in 0..N if p[b] > 0: x[argmax(j in 0..b if x[j] < p[b]: x[j])]) }";
  Arrays in = {{"x", f32({3}, {3, 1, 2})}, {"p", f32({3}, {-1, 5, 2})}};
  expect_outcome(text, in, "");
  in["p"] = f32({3}, {-1, 5, 0.5});
  expect_outcome(text, in, "op f: y needs argmax over nothing");
  const char* nested =
      "op f(x: f32[N,K], c: i32[N]) -> (y) {"
      " y = max(n: x[n, argmax(k in 0..K if f32(k) >= f32(argmax(m if c[m] > 0: f32(c[m]))): x[n,k])]) }";
  in = {{"x", f32({2, 3}, {1, 2, 3, 6, 5, 4})}, {"c", i32({2}, {-1, 7})}};
  expect_outcome(nested, in, "");
  in["c"] = i32({2}, {-1, -7});
  expect_outcome(nested, in, "op f: y needs argmax over nothing");
}

// Where nothing is computed nothing fails, though the argmax does not depend on the axis that has no values.
TEST(RuntimeFailure, ArgmaxThatNobodyAsksFor) {
  const char* pick = "op f(x: f32[N,D]) -> (y) { y[n,d] = x[n,d] * f32(argmax(k: x[n,k])) }";
  expect_outcome(pick, {{"x", f32({2, 2}, {1, 2, 4, 3})}}, "");
  expect_outcome(pick, {{"x", f32({2, 0}, {})}}, "");
  const char* other = "op f(x: f32[K], z: f32[N]) -> (y) { y = sum(n: z[n] * f32(argmax(k: x[k]))) }";
  expect_outcome(other, {{"x", f32({2}, {1, 2})}, {"z", f32({3}, {1, 2, 3})}}, "");
  expect_outcome(other, {{"x", f32({0}, {})}, {"z", f32({0}, {})}}, "");
  expect_outcome(other, {{"x", f32({0}, {})}, {"z", f32({3}, {1, 2, 3})}}, "op f: y needs argmax over nothing");
  const char* both = "op f(x: f32[K], z: f32[N]) -> (y) { y = f32(argmax(k: x[k])) + sum(n: z[n] * f32(argmax(k: x[k]))) }";
  expect_outcome(both, {{"x", f32({0}, {})}, {"z", f32({0}, {})}}, "op f: y needs argmax over nothing");
}

// Checks of many definitions at once; the last one fails.
TEST(RuntimeFailure, AmongManyDefinitions) {
  std::string text = "op f(x: f32[K], z: f32) -> (y) {\n", sum = "z";
  for (int i = 0; i < 70; ++i) {
    std::string n = std::to_string(i);
    text += "  a" + n + " = argmax(k if x[k] > " + n + ": x[k])\n";
    sum += " + f32(a" + n + ")";
  }
  text += "  y = " + sum + "\n}";
  expect_outcome(text, {{"x", f32({2}, {1, 70})}, {"z", f32({}, {1})}}, "");
  expect_outcome(text, {{"x", f32({2}, {1, 69})}, {"z", f32({}, {1})}}, "op f: a69 needs argmax over nothing");
}

// An index is checked once for all that is read at it, and not at all where nothing is.
TEST(RuntimeFailure, IndicesOfRowsWithoutElements) {
  const char* text = "op f(t: f32[V,D], ids: i32[B]) -> (y) { y[b,d] = t[ids[b],d] }";
  expect_outcome(text, {{"t", f32({3, 0}, {})}, {"ids", i32({2}, {1, 5})}}, "");
  expect_outcome(text, {{"t", f32({3, 2}, {1, 2, 3, 4, 5, 6})}, {"ids", i32({2}, {1, 2})}}, "");
  expect_outcome(text, {{"t", f32({3, 2}, {1, 2, 3, 4, 5, 6})}, {"ids", i32({2}, {1, 5})}}, "5");
}

// What is derived may read where the program has no points; what is asked is whether the program itself reads there.
TEST(RuntimeFailure, IndicesWhereARangeIsEmpty) {
  const char* text =
      "op f(v: f32[K], n: i32[N], x: f32[M,N]) -> (y, z) {"
      " y[i in 0..M, j in 0..N] = x[i,j] * max(l in 0..2: v[n[j]] * f32(l)); z[i in 0..K, j in 0..N] = v[i] * v[n[j]] }";
  const Array one = f32({1}, {3}), none = f32({0}, {}), row = f32({1, 2}, {1, 2}), no_row = f32({0, 2}, {});
  expect_outcome(text, {{"v", one}, {"n", i32({2}, {0, 0})}, {"x", row}}, "");
  expect_outcome(text, {{"v", one}, {"n", i32({2}, {0, 7})}, {"x", row}}, "op f: y[0,1] reads v[7]");
  expect_outcome(text, {{"v", one}, {"n", i32({2}, {0, 7})}, {"x", no_row}}, "op f: z[0,1] reads v[7]");
  expect_outcome(text, {{"v", none}, {"n", i32({2}, {0, 7})}, {"x", no_row}}, "");
  expect_outcome(text, {{"v", none}, {"n", i32({2}, {0, 7})}, {"x", row}}, "op f: y[0,0] reads v[0]");
}

// Whoever says that the data are right is not made to wait for a look at them, at no sizes.
TEST(RuntimeFailure, TrustedIndicesWhereARangeIsEmpty) {
  CompileOptions options;
  options.differentiate = false;
  CompiledOp op = compile(parse_op("op f(v: f32[K], n: i32[N], x: f32[M,N]) -> (y, z) { y[i in 0..M, j in 0..N] = x[i,j] * v[n[j]]; z[j] = v[n[j]] }"), options);
  std::vector<float> v = {3}, z = {-1, -1};
  std::vector<int32_t> n = {0, 7};
  const std::vector<Argument> arguments = {{"v", TensorView(v.data(), {1})}, {"n", TensorView(n.data(), {2})}, {"x", TensorView(v.data(), {0, 2})},
                                           {"y", TensorView(z.data(), {0, 2})}, {"z", TensorView(z.data(), {2})}};
  EXPECT_NE(error_of([&] { op.infer(arguments); }, "").find("op f: z[1] reads v[7]"), std::string::npos);
  EXPECT_EQ(error_of([&] { op.infer(arguments, {.trust_data = true}); }, ""), "");
  EXPECT_EQ(z, (std::vector<float>{3, 0}));
}

TEST(RuntimeFailure, NothingIsWritten) {
  Program p = parse_op("op f(x: f32[N,K]) -> (best) { best[n] = argmax(k if x[n,k] > 0: x[n,k]) }");
  CompileOptions options;
  options.differentiate = false;
  CompiledOp op = compile(p, options);
  std::vector<float> x = {1, 2, -3, -4};
  std::vector<int64_t> best = {77, 77};
  std::string e = error_of([&] { op.infer({{"x", TensorView(x.data(), {2, 2})}, {"best", TensorView(best.data(), {2})}}); }, "");
  EXPECT_NE(e.find("op f: best[1] needs argmax over nothing"), std::string::npos) << e;
  EXPECT_EQ(best, (std::vector<int64_t>{77, 77}));
}

}  // namespace
}  // namespace xhat::testing::failure_test
