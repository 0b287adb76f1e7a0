// Gradients where a sum has no terms: after the reduction algebra as before it.
#include "cse/algebra/empty_sums.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ad/check/random_inputs.h"
#include "cse/stash/stash_planner.h"
#include "tests/helpers/cse_helper.h"
#include "tests/helpers/golden.h"

namespace xhat::empty_sums_test {
namespace {

using testing::backward_nodes;
using testing::derived;
using testing::derived_op;
using Policy = StashOptions::Policy;

struct EmptyCase {
  std::string name, text;
  DimValues dims;
  std::string nowhere = {};  // a bool input, then false throughout
};
void PrintTo(const EmptyCase& of, std::ostream* out) { *out << of.name; }

std::string plain(const std::string& name) { return std::ranges::find(testing::plain_ops(), name, &testing::PlainOp::name)->text; }

const std::vector<EmptyCase>& cases() {
  static const std::string masked_attention =
      "op f(q: f32[S,D], k: f32[T,D], v: f32[T,D], keep: bool[T]) -> (o) {\n"
      " s[i,j] = sum(d: q[i,d] * k[j,d])\n p[i,j] = exp(s[i,j])\n z[i] = sum(j if keep[j]: p[i,j])\n"
      " o[i,d] = sum(j if keep[j]: p[i,j] * v[j,d]) / z[i] }";
  static const std::vector<EmptyCase> all = {
      {"BatchNorm", plain("batch_norm"), {{"N", 0}, {"C", 3}, {"H", 2}, {"W", 2}}},
      {"Attention", plain("attention"), {{"B", 2}, {"S", 3}, {"T", 0}, {"D", 2}}},
      {"MaskedAttention", masked_attention, {{"S", 3}, {"T", 4}, {"D", 2}}, "keep"},
      {"StrictlyCausal",
       "op f(q: f32[S], k: f32[S]) -> (o) {\n z[i in 0..S] = sum(j in 0..i: exp(k[j]))\n"
       " o[i in 0..S] = sum(j in 0..i: exp(k[j]) * q[i] * k[j]) / z[i] }",
       {{"S", 4}}},
      {"MeanOfRows",
       "op f(table: f32[V,D], ids: i32[B,L]) -> (y) { y[b,d] = sum(l: table[ids[b,l],d]) / L }",
       {{"V", 3}, {"D", 2}, {"B", 2}, {"L", 0}}},
      {"WeightInsideTheMean", "op f(x: f32[N,C], g: f32[C]) -> (y) { y[c] = sum(n: g[c] * x[n,c] / N) }", {{"N", 0}, {"C", 2}}},
      {"Several",
       "op f(x: f32[N,C], u: f32[M,C], g: f32[C], v: f32[C]) -> (y, z) {\n y[n,c] = g[c] * x[n,c] / sum(k: "
       "v[c] * x[k,c])\n"
       " z[m,c] = g[c] * u[m,c] / sum(k: v[c] * u[k,c]) }",
       {{"N", 0}, {"M", 3}, {"C", 2}}},
  };
  return all;
}

class EmptySumsTest : public ::testing::TestWithParam<EmptyCase> {};

TEST_P(EmptySumsTest, GradientsAreThePlainOnes) {
  Program before = derived(GetParam().text);
  DimValues dims = GetParam().dims;
  Arrays data = random_inputs(before, dims, 5, {.finite = false});
  data.merge(random_cotangents(before, dims, 6));
  if (!GetParam().nowhere.empty()) {
    Array& x = data.at(GetParam().nowhere);
    x = array_of(DType::boolean, x.shape, std::vector<double>(x.size(), 0));
  }
  Arrays expected = testing::evaluate_on(before, data, dims);
  for (Policy policy : {Policy::none, Policy::largest, Policy::cost}) {
    StashOptions options;
    options.policy = policy;
    Program after = plan_stash(before, options).program;
    verify(after);
    EXPECT_EQ(testing::difference(expected, testing::evaluate_on(after, data, dims), 1e-9), "") << print(after);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, EmptySumsTest, ::testing::ValuesIn(cases()), [](const auto& of) { return of.param.name; });

// What the axes show to have terms is left alone, as is what is finite anyway.
TEST(EmptySumGuards, StandOnlyWhereNeeded) {
  for (const char* name : {"softmax", "layer_norm", "rms_norm", "linear_sigmoid", "cumulative"}) {
    Program p = plan_stash(derived_op(name)).program;
    EXPECT_EQ(backward_nodes(p, Op::select), 0) << print(p);
  }
}

TEST(EmptySumGuards, AreBySizesWhereSizesTell) {
  Program p = plan_stash(derived_op("batch_norm")).program;
  EXPECT_EQ(testing::body_of(p, "grad_gamma").find("if 0 < N && 0 < H && 0 < W then"), 0u) << print(p);
  EXPECT_EQ(testing::body_of(p, "grad_x").find("if "), std::string::npos) << print(p);
}

}  // namespace
}  // namespace xhat::empty_sums_test
