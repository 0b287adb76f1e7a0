// vmap, jacobian and hessian: what they make, as text; and what it computes, call by call, by the evaluator.
#include <gtest/gtest.h>

#include "ad/check/random_inputs.h"
#include "ad/forward/jvp.h"
#include "ad/forward/transform.h"
#include "tests/helpers/error_of.h"

namespace xhat::transform_test {
namespace {

using testing::error_of;

TEST(TransformText, VmapAddsAFirstAxis) {
  Program op =
      parse_op("op f(x: f32[N], w: f32[N], s: f32) -> (y, z) {\n  m = sum(i: x[i]) * s\n  y[i] = x[i] * w[i] - m\n  z[i] = w[i]^2\n}");
  EXPECT_EQ(print(vmap(op, {{"x"}})),
            "op f_vmap(x: f32[B,N], w: f32[N], s: f32) -> (y, z) {\n"
            "  m[b] = sum(i: x[b,i]) * s\n"
            "  y[b,i] = x[b,i] * w[i] - m[b]\n"
            "  z[b in 0..B, i] = w[i]^2\n"
            "}\n");
  // Names that the op has already.
  EXPECT_EQ(print(vmap(parse_op("op g(b: f32[B]) -> (y) { y[i] = b[i] }"))), "op g_vmap(b: f32[B1,B]) -> (y) {\n  y[b1,i] = b[b1,i]\n}\n");
}

TEST(TransformText, JacobiansAreOfTheOutputsAxesAndThenTheInputs) {
  EXPECT_EQ(print(jacobian(parse_op("op f(x: f32[N], s: f32) -> (y) { y[i] = s * x[i]^2 }"))),
            "op f_jacobian(x: f32[N], s: f32) -> (y, jac_y_x, jac_y_s) {\n"
            "  t_s = 1\n"
            "  t_x[i1 in 0..N, j in 0..N] = if i1 == j then 1 else 0\n"
            "  y[i] = s * x[i]^2\n"
            "  jac_y_x[i,j] = t_x[i,j] * (2 * x[i]) * s\n"
            "  jac_y_s[i] = t_s * x[i]^2\n"
            "}\n");
}

TEST(TransformText, WhatCannotBeIsRefusedByName) {
  Program loop = parse_op("prog f(x: f32[T]) -> (h) { var h = 0.0\n for t in 0..T { h = tanh(h) + x[t] } }");
  EXPECT_NE(error_of([&] { vmap(loop); }).find("f: vmap of a program with loops"), std::string::npos);
  EXPECT_NE(error_of([&] { jacobian(loop); }).find("f: the jacobian of a program with loops"), std::string::npos);
  EXPECT_NE(error_of([&] { hessian(loop); }).find("f: the hessian of a program with loops"), std::string::npos);
  Program op = parse_op("op f(x: f32[N]) -> (y) { y[i] = x[i]^2 }\ngrad f(x, dy) -> (dx) { dx[i] = 2*x[i]*dy[i] }", "f");
  EXPECT_NE(error_of([&] { vmap(op); }).find("states its own gradient"), std::string::npos);
  EXPECT_NE(error_of([&] { vmap(op, {{"z"}}); }).find("states its own gradient"), std::string::npos);
  EXPECT_NE(error_of([&] { hessian(op); }).find("of one float output, a scalar, but there are y"), std::string::npos);
  EXPECT_NE(error_of([&] { vmap(parse_op("op g(x: f32) -> (y) { y = x }"), {{"z"}}); }).find("no input z to map over; its inputs are x"),
            std::string::npos);
  EXPECT_NE(error_of([&] { jacobian(parse_op("op g(x: f32) -> (y) { y = x }"), {{"z"}}); }).find("z"), std::string::npos);
}

// Of many kinds: reductions, windows, whole numbers, data as indices, calls, extents with definitions, conditions, several outputs.
const char* const kOps[] = {
    "op f(x: f64[N,D], g: f64[D]) -> (y) { m[n] = mean(d: x[n,d]); y[n,d] = g[d] * (x[n,d] - m[n]) / sqrt(mean(k: (x[n,k]-m[n])^2) + 1e-2) "
    "}",
    "op f(x: f64[N], s: f64) -> (y, at, z) { y = sum(i: x[i]^2 * s); at = argmax(i: x[i]); z[i] = if x[i] > 0 then s * x[i] else x[i]^3 }",
    "op f(x: f64[H], w: f64[3]) -> (y) { dim O = (H + 1)/2\n y[i in 0..O] = sum(r: x[2*i+r-1 else 0] * w[r]) }",
    "op f(t: f64[V,D], ids: i64[N]) -> (y) { y[n,d] = t[ids[n],d] * t[ids[n],0] }",
    "op g(x: f64[N]) -> (y) { y[i] = exp(x[i]) / sum(k: exp(x[k])) }\nop f(a: f64[N], b: f64[N]) -> (z) { p = g(a)\n z = sum(i: p[i] * "
    "b[i]) }",
    "op f(a: f64[M,K], b: f64[K,N]) -> (c) { c[m,n] = sum(k: a[m,k] * b[k,n]) }",
    "op f(x: f64[N]) -> (y) { y[i in 0..N] = max(k in 0..i+1: x[k] * x[k]) }",
    "op f(b: f64[B], j: f64[B]) -> (i) { i[b1] = b[b1] * j[B-1-b1] }",
};

// Element `at` of the first axis.
Array part(const Array& a, int64_t at) {
  Array made = a;
  made.shape.erase(made.shape.begin());
  const int64_t n = element_count(made.shape);
  auto take = [&](auto& values) {
    using Values = std::remove_reference_t<decltype(values)>;
    if (!values.empty()) values = Values(values.begin() + at * n, values.begin() + (at + 1) * n);
  };
  take(made.reals);
  take(made.integers);
  return made;
}

TEST(Transform, VmapIsCallByCall) {
  for (const char* text : kOps) {
    const Program op = parse_op(text);
    std::vector<std::vector<std::string>> choices = {{}};
    for (TensorId t : op.inputs) choices.push_back({op.tensors[t].name});
    for (const auto& mapped : choices) {
      const Program p = vmap(op, {mapped});
      SCOPED_TRACE(print(p));
      EXPECT_TRUE(equal(parse_op(print(p)), p));
      const DimValues dims = sample_dims(p, 3);
      const Arrays data = random_inputs(p, dims, 4), results = evaluate(p, data, dims);
      const int64_t count = results.begin()->second.shape[0];
      for (int64_t i = 0; i < count; ++i) {
        Arrays one = data;
        for (auto& [name, array] : one)
          if (mapped.empty() || name == mapped[0]) array = part(array, i);
        for (const auto& [name, wanted] : evaluate(op, one)) EXPECT_EQ(part(results.at(name), i), wanted) << name;
      }
    }
  }
}

// Each column of a jacobian is the jvp along one element of the input.
TEST(Transform, JacobiansAreTheirColumns) {
  for (const char* text : kOps) {
    const Program op = parse_op(text), p = jacobian(op);
    SCOPED_TRACE(print(p));
    EXPECT_TRUE(equal(parse_op(print(p)), p));
    const DimValues dims = sample_dims(op, 5);
    const Arrays data = random_inputs(op, dims, 6), results = evaluate(p, data, dims);
    for (TensorId t : op.inputs) {
      const Tensor& x = op.tensors[t];
      if (!is_float(x.type)) continue;
      const Program product = jvp(op, {{x.name}});
      const auto columns = static_cast<size_t>(data.at(x.name).size());
      for (size_t j = 0; j < columns; ++j) {
        Arrays in = data;
        Array& direction = in[product.tensors[product.inputs.back()].name] = data.at(x.name);
        direction.reals.assign(columns, 0);
        direction.reals[j] = 1;
        const Arrays wanted = evaluate(product, in, dims);
        size_t next = op.outputs.size();
        for (TensorId y : op.outputs) {
          if (!is_float(op.tensors[y].type)) continue;
          const Array& column = wanted.at(product.tensors[product.outputs[next++]].name);
          const Array& all = results.at("jac_" + op.tensors[y].name + "_" + x.name);
          for (size_t i = 0; i < column.reals.size(); ++i)
            EXPECT_NEAR(all.reals.at(i * columns + j), column.reals[i], 1e-12 * (1 + std::abs(column.reals[i])))
                << x.name << " " << i << " " << j;
        }
      }
    }
  }
}

TEST(Transform, HessiansAreSymmetricAndTheirColumnsAreHvps) {
  const Program op = parse_op("op f(x: f64[N], w: f64[M]) -> (l) { l = sum(i, j: sin(x[i] * w[j])) * sum(j: w[j]^2) + x[0]^3 }");
  const Program p = hessian(op);
  SCOPED_TRACE(print(p));
  EXPECT_TRUE(equal(parse_op(print(p)), p));
  const DimValues dims = {{"N", 4}, {"M", 3}};
  const Arrays data = random_inputs(op, dims, 7), results = evaluate(p, data, dims);
  const Array &xw = results.at("hess_x_w"), &wx = results.at("hess_w_x");
  EXPECT_EQ(xw.shape, (std::vector<int64_t>{4, 3}));
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 0; j < 3; ++j) EXPECT_NEAR(xw.reals[i * 3 + j], wx.reals[j * 4 + i], 1e-12);
  const Program product = hvp(op);
  for (size_t j = 0; j < 4; ++j) {
    Arrays in = data;
    in["dl"] = scalar_of(DType::f64, 1);
    in["t_x"] = data.at("x");
    in["t_x"].reals = {0, 0, 0, 0};
    in["t_x"].reals[j] = 1;
    in["t_w"] = data.at("w");
    in["t_w"].reals = {0, 0, 0};
    const Arrays wanted = evaluate(product, in, dims);
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(results.at("hess_x_x").reals[i * 4 + j], wanted.at("hvp_x").reals[i], 1e-11);
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(wx.reals[i * 4 + j], wanted.at("hvp_w").reals[i], 1e-11);
  }
}

}  // namespace
}  // namespace xhat::transform_test
