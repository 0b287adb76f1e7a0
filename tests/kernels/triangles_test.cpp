// Products within triangles and bands (runtime/cpu/lower_bands.cpp, fusion/plan/triangles.h): values over sizes with tails, for any number of
// threads; and that blocks without terms have no steps.
#include <gtest/gtest.h>

#include "ad/reverse/gradient.h"
#include "fusion/plan/triangles.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::triangles_test {
namespace {

using namespace xhat::testing;

Program op_of(const std::string& body, const std::string& type) {
  return parse_op("op f(a: " + type + "[N,N], b: " + type + "[N,N], q: " + type + "[N,K], p: " + type + "[N,K]) -> (y) { " + body + " }");
}

// Values and gradients, in several tiles, on one thread and two, to the bit.
void expect_agreement(const std::string& body, const std::string& type, const DimValues& dims) {
  SCOPED_TRACE(body + " in " + type + ", " + dims_text(dims));
  const Program op = op_of(body, type), derived = gradient(op);
  const Arrays data = random_data(derived, dims, 11), right = evaluate_on(derived, data, dims);
  Arrays one;
  for (int threads : {1, 2}) {
    CompileOptions options;
    options.machine.serial_bytes = 16;
    options.threads = threads;
    const Arrays found = run_both(compile(op, options), data, dims);
    if (threads == 1) {
      EXPECT_EQ(difference(right, found, type == "f64" ? 1e-11 : 2e-4), "");
      one = found;
    }
    for (const auto& [name, array] : one) EXPECT_EQ(found.at(name).reals, array.reals) << name << ", " << threads << " threads";
  }
}

TEST(Triangles, ValuesAtTails) {
  for (const char* body : {
           "y[i,j] = sum(k if j <= i: q[i,k]*q[j,k]*a[0,0])",         // of the result
           "y[i,j] = sum(k in 0..i+1: a[i,k]*b[k,j])",                // of the terms, along the rows
           "y[i,j] = sum(k in j..N: a[i,k]*b[k,j])",                  // along the columns
           "y[i,j] = sum(k if k <= i && k > i - 40: a[i,k]*b[k,j])",  // a band
           "y[i,j] = sum(k if k <= i && k >= j: a[i,k]*b[k,j])",      // both triangular
           "y[i,j] = max(k if k <= i: a[i,k]+b[k,j])",
       })
    for (auto [n, type] : {std::pair{131, "f64"}, {97, "f32"}}) expect_agreement(body, type, {{"N", n}, {"K", 33}});
  for (int64_t n : {0, 1, 2, 17}) expect_agreement("y[i,j] = sum(k in 0..i+1: a[i,k]*b[k,j])", "f64", {{"N", n}, {"K", 1}});
}

TEST(Triangles, WhatIsOutsideIsNotMultiplied) {
  const DimValues dims = {{"N", 96}, {"K", 8}};
  const Program op = op_of("y[i,j] = sum(k in 0..i+1: a[i,k]*b[k,j]) + q[0,0]", "f32");
  Arrays data = random_data(op, dims, 3);
  // No row but the last reads the last row of b; none a[i,k] beyond its own place.
  for (size_t j = 0; j < 96; ++j) data.at("b").reals[95 * 96 + j] = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < 95; ++i) data.at("a").reals[i * 96 + i + 1] = 0;
  EXPECT_EQ(difference(evaluate_on(op, data, dims), run_infer(compile(op), data, dims), 1e-4), "");
}

struct Made {
  Program program;
  int conditions = 0;  // sums that have one
};

Made made_of(const std::string& body, const DimValues& dims = {{"N", 160}, {"K", 140}}, const PlanRequest& request = {}) {
  const Program p = infer_program(op_of(body, "f64"));
  const Program made = products_in_triangles(p, dims, request);
  verify(made);
  const Arrays data = random_data(p, dims, 4);
  EXPECT_EQ(difference(evaluate_on(p, data, dims), evaluate_on(made, data, dims), 0), "") << print(made);
  Made m{made};
  for (const Definition& d : made.forward.definitions) {
    const Node& n = (*made.arena)[d.body];
    m.conditions += is_reduction(n.op) && !is_true(*made.arena, reduce_condition(n));
  }
  return m;
}

TEST(ProductsInTriangles, OfWhichATriangleIsRead) {
  const std::string scores = "s[i,j] = sum(k: q[i,k]*p[j,k]); ";
  EXPECT_EQ(made_of(scores + "y[i] = max(j in 0..i+1: s[i,j])").conditions, 1);
  EXPECT_EQ(made_of(scores + "y[i,j] = if j <= i then s[i,j] else 0").conditions, 1);
  EXPECT_EQ(made_of(scores + "y[i,j] = if j <= i then s[i,j] else 2*s[i,j]").conditions, 0) << "all of it is read";
  EXPECT_EQ(made_of(scores + "y[i,j] = if j <= i then s[j,i] else 0").conditions, 1) << "the other triangle";
  EXPECT_EQ(made_of(scores + "y[i in 0..N,j in 0..N] = if j <= i then s[i,N-1-j] else 0").conditions, 0) << "read at other places";
  EXPECT_EQ(made_of(scores + "y[i,j] = if j <= i + 158 then s[i,j] else 0").conditions, 0) << "nearly all";
}

TEST(ProductsInTriangles, OfWideWindows) {
  EXPECT_EQ(made_of("y[i,c] = sum(j in max(0,i-50)..i+1: a[i,j]*q[j,c])").conditions, 1);
  EXPECT_EQ(made_of("y[i,c] = sum(j in max(0,i-5)..i+1: a[i,j]*q[j,c])").conditions, 0) << "few terms";
}

TEST(ProductsInTriangles, HalfOfWhatIsItsOwnMirrorImage) {
  EXPECT_EQ(made_of("y[i,j] = sum(k: q[i,k]*q[j,k])").conditions, 1);
  EXPECT_EQ(made_of("y[i,j] = sum(k: (q[i,k]-q[j,k])^2)").conditions, 1);
  EXPECT_EQ(made_of("y[i,j] = sum(k: q[i,k]*p[j,k])").conditions, 0);
  EXPECT_EQ(made_of("y[i,j] = sum(k: abs(q[i,k]-2*q[j,k]))").conditions, 0);
  EXPECT_EQ(made_of("y[i,j] = sum(k: q[i,k]*q[j,k])", {{"N", 160}, {"K", 20}}).conditions, 0) << "copying costs more";
  const std::string halves =
      "s[i in 0..N,j in 0..N] = sum(k if i < j: a[k,i]*a[k,j]); t[i in 0..N,j in 0..N] = sum(k if j < i: a[k,j]*a[k,i]); "
      "y[i,j] = if j < i then t[i,j] else s[i,j]";
  const Made both = made_of(halves);
  EXPECT_EQ(both.conditions, 1) << "one is read for the other: " << print(both.program);
}

}  // namespace
}  // namespace xhat::triangles_test
