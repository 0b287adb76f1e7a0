// The interpreter of imperative programs, by values worked out by hand: it is what functionalized programs are compared with.
#include <gtest/gtest.h>

#include "expr/eval/interpret.h"

namespace xhat::interpret_test {
namespace {

using Reals = std::vector<double>;

Array reals(std::vector<int64_t> shape, Reals values) { return array_of(DType::f32, std::move(shape), std::move(values)); }
Array integer(int64_t value) {
  Array a = zeros(DType::i32, {});
  a.integers[0] = value;
  return a;
}

// The first output.
Reals run(const std::string& text, const Arrays& inputs, const DimValues& dims = {}) {
  const auto file = ast::parse(text);
  const ast::Op& program = file->ops.back();
  return interpret(*file, program, inputs, dims).at(program.body.outputs[0].text).reals;
}

TEST(Interpret, RowsInALoop) {
  EXPECT_EQ(run("prog p(b0: f32[4,2]) -> (b) { var b = clone(b0)\n for i in 0..3 { b[i] = b[i] + 1 } }", {{"b0", zeros(DType::f32, {4, 2})}}),
            (Reals{1, 1, 1, 1, 1, 1, 0, 0}));
}

TEST(Interpret, ABranchRebindsAndWrites) {
  const std::string text =
      "prog p(a0: f32[3], b0: f32[3,3], idx: i32) -> (r) { var a = a0\n var b = clone(b0)\n"
      "if idx >= 0 { a = a + 1.0; b[idx] = a } else { a = a - 1.0; b[-idx] = a }\n r = a + b }";
  Arrays in = {{"a0", zeros(DType::f32, {3})}, {"b0", reals({3, 3}, Reals(9, 10))}, {"idx", integer(1)}};
  EXPECT_EQ(run(text, in), (Reals{11, 11, 11, 2, 2, 2, 11, 11, 11}));
  in["idx"] = integer(-1);
  EXPECT_EQ(run(text, in), (Reals{9, 9, 9, -2, -2, -2, 9, 9, 9}));
}

// v names the memory that t had before it was bound anew.
TEST(Interpret, AnAliasKeepsTheOldMemory) {
  const std::string text =
      "prog p(d: f32[12], c: bool) -> (r) { var t = clone(d)\n var v = t[1:2]\n"
      "if c { t = t + 1\n for i in 0..10 { v[:] = t[i+1:i+2] } } else { t = t + v\n v[:] = t[2:3] }\n r = v + t }";
  Reals d(12);
  for (size_t i = 0; i < 12; ++i) d[i] = 10.0 * static_cast<double>(i);
  Arrays in = {{"d", reals({12}, d)}, {"c", scalar_of(DType::boolean, 1)}};
  Reals wanted(12);
  for (size_t i = 0; i < 12; ++i) wanted[i] = 101 + d[i] + 1;
  EXPECT_EQ(run(text, in), wanted);
  in["c"] = scalar_of(DType::boolean, 0);
  for (size_t i = 0; i < 12; ++i) wanted[i] = 30 + d[i] + 10;
  EXPECT_EQ(run(text, in), wanted);
}

// A literal takes the type of the side of a choice that is not taken, in sums and definitions, too, and where there are no terms.
TEST(Interpret, ALiteralHasTheTypeOfTheOtherSide) {
  const Arrays in = {{"x", reals({4}, {-1, 2, -3, 4})}};
  EXPECT_EQ(run("prog p(x: f32[N]) -> (y) { c = sum(k: if x[k] < 0 then i64(1) else 0)\n y = x[min(c, N-1)] }", in, {{"N", 4}}),
            (Reals{-3}));
  EXPECT_EQ(run("prog p(x: f32[N]) -> (y) { d[i] = if x[i] < 0 then i64(1) else 0\n y[i] = x[d[i]] }", in, {{"N", 4}}),
            (Reals{2, -1, 2, -1}));
  EXPECT_EQ(
      run("prog p(x: f32[N]) -> (y) { c[i in 0..N] = sum(k in 0..i: if x[k] < 0 then k else 3)\n y[i] = f32(c[i]) / 2 }", in, {{"N", 4}}),
      (Reals{0, 0, 1.5, 2.5}));
  EXPECT_EQ(run("prog p(x: f32[N]) -> (y) { s = if x[0] > 0 then sum(j: i32(x[j])) else 7\n y = x[s % 4] }", in, {{"N", 4}}), (Reals{4}));
}

TEST(Interpret, AllViewsSeeAWrite) {
  EXPECT_EQ(run("prog p(x: f32[4]) -> (b) { var b = clone(x)\n var v = b[1:3]\n b += 1\n v *= 2 }", {{"x", reals({4}, {1, 2, 3, 4})}}),
            (Reals{2, 6, 8, 5}));
  EXPECT_EQ(run("prog p(x: f32[2,2]) -> (b) { var b = clone(x)\n b.transpose(0,1)[0] += 1 }", {{"x", reals({2, 2}, {1, 2, 3, 4})}}),
            (Reals{2, 2, 4, 4}));
  EXPECT_EQ(run("prog p(x: f32[2,2]) -> (b) { var b = clone(x)\n var d = b.diagonal()\n d += 1 }", {{"x", reals({2, 2}, {1, 2, 3, 4})}}),
            (Reals{2, 2, 3, 5}));
}

TEST(Interpret, RightSidesAreWholeBeforeTheWrite) {
  EXPECT_EQ(run("prog p(x: f32[4]) -> (a) { var a = clone(x)\n a[1:] = a[:-1] }", {{"x", reals({4}, {1, 2, 3, 4})}}), (Reals{1, 1, 2, 3}));
  EXPECT_EQ(run("prog p(x: f32[4]) -> (a) { var a = clone(x)\n a[:-1] = a[1:] }", {{"x", reals({4}, {1, 2, 3, 4})}}), (Reals{2, 3, 4, 4}));
}

TEST(Interpret, ARecurrenceGoesInOrder) {
  EXPECT_EQ(run("prog p(x: f32[4]) -> (b) { var b = clone(x)\n for i in 1..4 { b[i] = b[i-1] + 1 } }", {{"x", zeros(DType::f32, {4})}}),
            (Reals{0, 1, 2, 3}));
}

TEST(Interpret, DefinitionsOverAxes) {
  EXPECT_EQ(run("prog p(x: f32[2,3], w: f32[2]) -> (y) { z[i] = sum(j: x[i,j]) / 3\n y[i] = z[i] * w[i] + sum(k if k <= i: w[k]) }",
                {{"x", reals({2, 3}, {1, 2, 3, 4, 5, 6})}, {"w", reals({2}, {10, 20})}}),
            (Reals{30, 130}));
}

// Literals and dims take the other operand's type, so that sums beyond it wrap around.
TEST(Interpret, OpsOfNumbersAreCalledForEachElement) {
  const std::string ops = "op g(a: f32, b: f64) -> (y) { y = b - 2 * f64(a) }\nop twice(a: f32) -> (y) { y = a + a }\n";
  const Arrays in = {{"x", reals({2, 2}, {1, 2, 3, 4})}};
  EXPECT_EQ(run(ops + "prog p(x: f32[2,2]) -> (y) { y = g(x, x[1]) }", in), (Reals{1, 0, -3, -4}));
  EXPECT_EQ(run(ops + "prog p(x: f32[2,2]) -> (y) { var y = clone(x)\n for i in 0..2 { y[i,n] = twice(y[n,i]) + twice(1) } }", in),
            (Reals{4, 8, 18, 10}));
}

TEST(Interpret, NumbersBesideSmallIntegersWrap) {
  const auto file = ast::parse("prog p(x: u8[N]) -> (y, z) { var y = x + 200\n half = N / 2\n z[i] = x[i] * 100 / 3 + half }");
  Array x = zeros(DType::u8, {2});
  x.integers = {100, 2};
  const Arrays got = interpret(*file, file->ops[0], {{"x", x}}, {{"N", 2}});
  EXPECT_EQ(got.at("y").type, DType::u8);
  EXPECT_EQ(got.at("y").integers, (std::vector<int64_t>{44, 202}));
  EXPECT_EQ(got.at("z").integers, (std::vector<int64_t>{5 + 1, 66 + 1}));
}

TEST(Interpret, AWhileLoopEndsByItsConditionOrItsBound) {
  const std::string text = "prog p(x: f32) -> (y) { var y = x\n while y < 20 max 3 { y *= 2 } }";
  EXPECT_EQ(run(text, {{"x", scalar_of(DType::f32, 6)}}), Reals{24});
  EXPECT_EQ(run(text, {{"x", scalar_of(DType::f32, 1)}}), Reals{8});
  EXPECT_EQ(run(text, {{"x", scalar_of(DType::f32, 21)}}), Reals{21});
}

TEST(Interpret, WhatIsOutsideIsAnError) {
  const Arrays in = {{"x", zeros(DType::f32, {3})}};
  EXPECT_THROW(run("prog p(x: f32[3]) -> (y) { var y = clone(x)\n y[3] = 1 }", in), Error);
  EXPECT_THROW(run("prog p(x: f32[3]) -> (y) { var y = x[1:4] }", in), Error);
  EXPECT_THROW(run("prog p(x: f32[3]) -> (y) { var y = x.reshape[2] }", in), Error);
}

}  // namespace
}  // namespace xhat::interpret_test
