// parse(print(p)) is p, and print is a fixed point: for the language's examples, for every kind of node, and for
// expressions that only passes build.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "expr/core/program.h"
#include "tests/helpers/ast_helpers.h"

namespace xhat::print_test {
namespace {

void expect_round_trip(const Program& p) {
  verify(p);
  std::string text = print(p);
  Program q = [&] {
    try {
      return parse_op(text);
    } catch (const Error& e) {
      ADD_FAILURE() << e.what() << "\nin\n" << text;
      throw;
    }
  }();
  EXPECT_TRUE(equal(p, q)) << text << "\nreads back as\n" << print(q);
  EXPECT_EQ(print(q), text);
  verify(q);
}

// The text is printed as it stands.
void expect_canonical(const std::string& params, const std::string& statements,
                      const std::string& backward = "") {
  std::string text = "op f(" + params + ") -> (y) {\n" + statements + "\n}" + backward + "\n";
  Program p = parse_op(text);
  EXPECT_EQ(print(p), text);
  expect_round_trip(p);
}

TEST(PrintProgramTest, ExamplesOfTheLanguage) {
  Module module = parse(ast::kContract, "language.xh");
  EXPECT_GE(module.ops.size(), 6u);
  for (const auto& op : module.ops) expect_round_trip(*op);
}

TEST(PrintProgramTest, BatchNorm) {
  const std::string text =
      "op batch_norm(x: f32[N,C,H,W], gamma: f32[C], beta: f32[C]) -> (y) {\n"
      "  mean[c] = sum(n,h,w: x[n,c,h,w]) / (N * H * W)\n"
      "  var[c] = sum(n,h,w: (x[n,c,h,w] - mean[c])^2) / (N * H * W)\n"
      "  y[n,c,h,w] = gamma[c] * (x[n,c,h,w] - mean[c]) / sqrt(var[c] + 1e-5) + beta[c]\n"
      "}\n";
  EXPECT_EQ(print(parse_op(text)), text);
}

TEST(PrintProgramTest, RangesOnlyWhereInferenceNeedsThem) {
  expect_canonical("x: f32[N]", "  y[i] = x[i]");
  expect_canonical("x: f32[N]", "  y[i in 0..N] = x[N-1-i]");
  expect_canonical("x: f32[N]", "  y[i] = x[i] + sum(k in 0..i+1: x[k])");
  expect_canonical("x: f32[N]", "  y = sum(p, q in p..N if p != q: x[p] * x[q])");
  expect_canonical("x: f32[N]", "  y[i in 0..N+1] = x[i else 0]");
  expect_canonical("x: f32[N]", "  y[i] = x[i else 0]");
  expect_canonical("x: f32[N], w: f32[3]", "  y[i] = x[i] * w[i else 0]");
  expect_canonical("x: f32[N,3], ids: i32[M]", "  y[m,j] = x[ids[m],j]");
  expect_canonical("x: f32[2*H+1]", "  dim OH = H * H / 2\n  y[i in 0..OH] = x[i else 0]");
}

TEST(PrintProgramTest, NumbersStandBareBesideTypedOperands) {
  for (const char* type : {"f64", "f32", "f16", "bf16"}) {
    std::string params = std::string("x: ") + type + "[N], s: " + type;
    expect_canonical(params, "  y[i] = 0.5 * x[i] + N / 2 - x[i]^2 * -3 + 1e-5 + 1.5e300 * s");
    expect_canonical(params, "  y[i] = (if 0 < x[i] then 1 else N) * x[i] + -inf - nan + 1e22");
    expect_canonical(params, "  y[i] = sum(k if 0 < x[k]: 1) * x[i]");
  }
  for (const char* type : {"i64", "i32", "u32", "u8"}) {
    std::string params = std::string("x: ") + type + "[N]";
    expect_canonical(params, "  y[i] = x[i] / 2 + x[i] % 3 * (N / 2) + x[i]^2");
    expect_canonical(params, "  y[i] = if x[i] == 3 then 1 else x[i] / 2");
  }
  expect_canonical("x: f32[N]", "  y[i] = if 0 < x[i] then 1 else 0");
  expect_canonical("x: f32[N]", "  y = N / 3");
  expect_canonical("x: i64[N]", "  y[i] = x[i] + -9223372036854775807");
}

TEST(PrintProgramTest, CastsWhereNothingGivesTheType) {
  expect_canonical("s: f32", "  y = exp(f32(2)) * s");
  expect_canonical("x: f32[N]", "  y = f64(N / 3)");
  expect_canonical("x: f32[N]", "  y = i64(N / 2)");
  expect_canonical("x: f32[N]", "  y[i] = x[i] * sqrt(f32(i64(N / 2)))");
  expect_canonical("x: f32[N]", "  y[i] = f32(f32(x[i])) + f32(f64(2)) + f32(i) + f32(i64(i64(N)))");
  expect_canonical("x: f32[N]", "  y[i] = i32(x[i]) + 3");
  expect_canonical("b: bool[N]", "  y[i] = i64(if b[i] then 3 else 4)");
  expect_canonical("x: f32[N]", "  y = isnan(f32(2)) || N < 3 || bool(i64(3))");
}

TEST(PrintProgramTest, SharedPartsGetALet) {
  expect_canonical("x: f32[N]", "  y[i] = let t1 = exp(x[i]) in let t2 = t1 + 1 in t1 * t2 / t2");
  expect_canonical("x: f32[N,K]", "  y[n] = sum(k: let t1 = exp(x[n,k]) in t1 * t1)");
  expect_canonical("x: f32[N], w: f32[K]", "  y[n] = let t1 = exp(x[n]) in sum(k: t1 * w[k] + t1)");
  expect_canonical("x: f32[N,K]", "  y[n] = sum(k if 0 < exp(x[n,k]): exp(x[n,k]))");
  expect_canonical("x: f32[N]", "  y[i] = if 0 < i then x[i-1] * x[i-1] else x[i] * x[i]");
  expect_canonical("t1: f32[N]", "  y[i] = let t2 = exp(t1[i]) in t2 * t2");
  // The read is out of range where the let stands, but not where it is used.
  expect_canonical("x: f32[N]", "  y[i] = let t1 = exp(x[i-1]) in if 0 < i then t1 * t1 else x[i]");
}

TEST(PrintProgramTest, ConditionsThatGuardTheirRightSide) {
  expect_canonical("x: f32[N]", "  y[i in 0..N] = if 0 < i && 0 < x[i-1] then 1 else 0");
  expect_canonical("x: f32[N]", "  y[i] = if i == 0 || 0 < x[i-1] then 1 else x[i]");
  expect_canonical("t: f32[V], ids: i32[N]",
                   "  y[n] = any(k in 0..n: 0 <= ids[k] && 0 < t[ids[k]] && 0 < ids[n])");
  // A conjunction that a pass built evaluates both sides, so it must not be spelled like one that does not.
  Program p = parse_op("op f(x: f32[N], b: bool[M]) -> (y) {\n  y[i] = x[i] < x[N-1-i]\n}");
  Arena& a = *p.arena;
  Definition& d = p.forward.definitions[0];
  Id first = a.binary(Op::lt, a.axis("i"), a.integer(3)),
     element = a.read(1, DType::boolean, {{a.integer(0)}});
  d.body = a.land(first, d.body);
  expect_round_trip(p);
  d.body = a.binary(Op::lor, d.body, element);
  expect_round_trip(p);
}

TEST(PrintProgramTest, SharingDoesNotExplode) {
  std::string statements = "  y[i] = let a0 = exp(x[i]) in ";
  for (int i = 1; i <= 200; ++i) {
    std::string before = "a" + std::to_string(i - 1);
    statements += "let a" + std::to_string(i) + " = " + before + " * " + before + " in ";
  }
  Program p = parse_op("op f(x: f32[N]) -> (y) {\n" + statements + "a200\n}");
  EXPECT_LT(print(p).size(), 10000u);
  expect_round_trip(p);
}

TEST(PrintProgramTest, LongChainsAndDeepTrees) {
  Program p = parse_op("op f(x: f32[N], w: f32[N]) -> (y) {\n  y[i] = x[i]\n}");
  Arena& a = *p.arena;
  Id i = a.axis("i");
  Id x = a.read(0, DType::f32, {{i}}), w = a.read(1, DType::f32, {{i}});
  Id chain = x, deep = x;
  for (int k = 0; k < 100000; ++k) chain = a.add(chain, k % 2 ? x : w);
  p.forward.definitions[0].body = chain;
  expect_round_trip(p);
  // Right-nested: more brackets than the parser takes, unless parts get names.
  for (int k = 0; k < 1000; ++k) deep = k % 2 ? a.mul(w, deep) : a.sub(x, deep);
  p.forward.definitions[0].body = deep;
  expect_round_trip(p);
}

TEST(PrintProgramTest, BackwardBlocksAndGradients) {
  expect_canonical("x: f32[N]", "  e[i] = exp(x[i])\n  y[i] = e[i] + 1",
                   " backward (dy: f32[N]) -> (grad_x) {\n  grad_x[i] = e[i] * dy[i]\n}");
  const std::string text =
      "op f(x: f32[N], w: f32[N] const) -> (y) {\n  y[i] = x[i] * w[i]\n}\n\n"
      "grad f(x, w, y, dy) -> (dx) {\n  dx[i] = dy[i] * w[i]\n}\n\n"
      "op g(x: f32[M]) -> (z) {\n  f_arg1[i0] = 2 * x[i0]\n  y = f(f_arg1, x)\n  z[i] = y[i] + 1\n}\n";
  Program p = parse_op(text);
  EXPECT_EQ(print(p), text);
  expect_round_trip(p);
}

TEST(PrintProgramTest, WhatOnlyPassesBuild) {
  Program p = parse_op("op f(x: f32[N], d: f64[N], n: i32[N], b: bool[N]) -> (y) {\n  y[i] = x[i]\n}");
  Arena& a = *p.arena;
  Id i = a.axis("i"), dim = a.dim("N");
  Id x = a.read(0, DType::f32, {{i}}), d = a.read(1, DType::f64, {{i}}), n = a.read(2, DType::i32, {{i}});
  Id b = a.read(3, DType::boolean, {{i}});
  Id one = a.constant(DType::f32, 1), half = a.constant(DType::f32, 0.5), real = a.cast(DType::f64, dim);
  Id number = a.cast(DType::f32, a.mul(real, real));
  Id lt = a.binary(Op::lt, dim, a.integer(3));
  std::vector<Id> bodies = {
      one,
      a.add(one, half),  // would fold
      a.mul(x, a.add(one, half)),
      a.cast(DType::f32, dim),  // not the number N
      a.cast(DType::f32, a.mul(dim, dim)),
      a.cast(DType::f32, a.constant(DType::f64, 2)),
      a.cast(DType::f32, a.add(a.constant(DType::f64, 2), a.constant(DType::f64, 3))),
      a.add(number, number),  // would become one number
      a.mul(x, a.unary(Op::exp, number)),
      a.unary(Op::neg, one),
      a.unary(Op::neg, a.constant(DType::f32, -1)),
      a.constant(DType::f32, -0.0),
      a.constant(DType::f32, -std::numeric_limits<double>::infinity()),
      a.constant(DType::f32, std::numeric_limits<double>::quiet_NaN()),
      a.constant(DType::f32, 1e-310),
      a.constant(DType::f32, 123456789012345680.0),
      a.select(lt, one, number),  // of dims only
      a.select(b, one, number),
      a.mul(a.select(b, one, number), half),
      a.unary(Op::stop_gradient, one),
      a.unary(Op::stop_gradient, a.select(b, one, half)),
      a.cast(DType::f32, a.unary(Op::isnan, one)),
      a.cast(DType::f32, a.binary(Op::eq, one, half)),
      a.cast(DType::f32, a.binary(Op::lt, real, a.constant(DType::f64, 3))),
      a.cast(DType::f32, a.binary(Op::lt, a.cast(DType::i32, dim), a.integer(3, DType::i32))),
      a.cast(DType::f32, a.binary(Op::lt, n, a.integer(-3, DType::i32))),
      a.cast(DType::f32, a.cast(DType::boolean, dim)),
      a.cast(DType::f32, a.cast(DType::i32, a.mul(real, a.constant(DType::f64, 0.5)))),
      a.cast(DType::f32, a.integer(std::numeric_limits<int64_t>::min())),
      a.cast(DType::f32, a.cast(DType::i64, i)),
      a.cast(DType::f32, a.add(d, real)),
      a.cast(DType::f32, a.unary(Op::exp, a.cast(DType::f64, one))),
      a.add(x, a.read(0, DType::f32, {{a.cast(DType::i32, i)}})),
      a.add(x, a.read_or(0, DType::f32, {{a.integer(3, DType::i32)}}, one)),
      a.cast(DType::f32, a.reduce(Op::argmax, {{{a.axis("k"), a.integer(0), dim}}}, kNone, real)),
      a.reduce(Op::sum, {{{a.axis("k"), a.integer(0), dim}}}, b, one),
      a.reduce(Op::max, {{{a.axis("k"), a.integer(2), a.integer(2)}}}, kNone, number),
      a.binary(Op::pow, one, x),
      a.binary(Op::pow, a.unary(Op::neg, x), a.unary(Op::neg, x)),
      a.unary(Op::neg, a.binary(Op::pow, x, half)),
      a.sub(x, a.sub(x, a.sub(x, one))),
      a.div(x, a.mul(x, x)),
      a.unary(Op::neg, a.unary(Op::neg, a.add(x, x))),
  };
  for (Id body : bodies) {
    p.forward.definitions[0].body = body;
    p.forward.definitions[0].axes = {{i, a.integer(0), dim}};
    expect_round_trip(p);
  }
}

TEST(PrintProgramTest, OneExpressionAndOneDefinition) {
  Program p = parse_op("op f(x: f32[N]) -> (y) {\n  y[i in 0..N-1] = x[i+1] - x[i]\n}");
  EXPECT_EQ(print(p, p.forward.definitions[0]), "y[i in 0..N-1] = x[i+1] - x[i]");
  EXPECT_EQ(print(p, p.forward.definitions[0].body), "x[i+1] - x[i]");
}

}  // namespace
}  // namespace xhat::print_test
