// What plain definitions need kept at the least, and how many sums their backward has, however they are spelled; and
// how bench/stash_table counts.
#include <gtest/gtest.h>

#include <cmath>

#include <fmt/format.h>

#include "bench/backward_graph.h"
#include "expr/eval/evaluate.h"
#include "tests/helpers/cse_helper.h"

namespace xhat::stash_table_test {
namespace {

using testing::backward_reductions;
using testing::derived;
using testing::expect_same_values;
using Policy = StashOptions::Policy;

// The best that is known, in f32 of 64x1024: large tensors (|x|) and rows beyond inputs and outputs that stay.
struct Optimum {
  double large = 0;
  int rows = 0;
};

struct Spelling {
  std::string name;
  std::string inputs;      // of the op
  std::string statements;  // its body
  int sums = 0;            // of the backward, at most
  Optimum stays, dropped;  // x stays; x is dropped
  bool tight = false;      // keeping more is faster: planned within the optimum as budget
  int64_t row = 64;        // elements of a row
  std::map<std::string, int64_t> dims = {{"N", 64}, {"D", 1024}};
};
void PrintTo(const Spelling& s, std::ostream* out) { *out << s.name; }

const std::string kX = "x: f32[N,D]", kNorm = "x: f32[N,D], gamma: f32[D], beta: f32[D]",
                  kImages = "x: f32[N,C,H,W], gamma: f32[C], beta: f32[C]", kProduct = "x: f32[N,D], w: f32[D,K]";
const std::map<std::string, int64_t> kImageDims = {{"N", 16}, {"C", 16}, {"H", 16}, {"W", 16}},
                                     kGroupDims = {{"N", 8}, {"G", 8}, {"K", 2}, {"S", 512}},
                                     kProductDims = {{"N", 64}, {"D", 1024}, {"K", 1024}};

std::vector<Spelling> spellings() {
  Optimum none{}, x{1, 0};
  std::vector<Spelling> all;
  auto element = [&](const std::string& name, const std::string& body, Optimum dropped, bool tight = false) {
    all.push_back({name, kX, body, 0, {}, dropped, tight});
  };
  element("tanh", "y[n,d] = tanh(x[n,d])", none);
  element("tanh_by_exp", "y[n,d] = 2/(1 + exp(-2*x[n,d])) - 1", none);
  element("sigmoid", "y[n,d] = sigmoid(x[n,d])", none);
  element("sigmoid_by_exp", "e[n,d] = exp(-x[n,d])\n y[n,d] = 1/(1 + e[n,d])", none);
  element("sigmoid_of_exp", "y[n,d] = exp(x[n,d])/(exp(x[n,d]) + 1)", none);
  element("silu", "y[n,d] = x[n,d]*sigmoid(x[n,d])", x);
  element("silu_by_exp", "y[n,d] = x[n,d]/(1 + exp(-x[n,d]))", x);
  element("gelu", "y[n,d] = 0.5*x[n,d]*(1 + tanh(0.7978845608*(x[n,d] + 0.044715*x[n,d]^3)))", x, true);
  element("gelu_named",
          "u[n,d] = x[n,d] + 0.044715*x[n,d]*x[n,d]*x[n,d]\n t[n,d] = tanh(0.7978845608*u[n,d])\n"
          " y[n,d] = x[n,d]*0.5*(t[n,d] + 1)",
          x, true);
  element("mish", "y[n,d] = x[n,d]*tanh(softplus(x[n,d]))", x, true);
  element("mish_by_log", "y[n,d] = x[n,d]*tanh(log(1 + exp(x[n,d])))", x, true);
  element("softplus", "y[n,d] = softplus(x[n,d])", none);
  element("softplus_by_log1p", "y[n,d] = log1p(exp(x[n,d]))", none);
  element("relu", "y[n,d] = relu(x[n,d])", none);
  element("relu_by_if", "y[n,d] = if x[n,d] > 0 then x[n,d] else 0", none);
  std::string sines = "s0[n,d] = sin(x[n,d])\n";
  for (int i = 1; i < 19; ++i) sines += fmt::format(" s{}[n,d] = sin(s{}[n,d])\n", i, i - 1);
  element("sines", sines + " y[n,d] = sin(s18[n,d])", x, true);

  auto row = [&](const std::string& name, const std::string& body, int sums, Optimum stays, Optimum dropped) {
    all.push_back({name,
                   body.find("gamma") == std::string::npos  ? kX
                   : body.find("beta") != std::string::npos ? kNorm
                                                            : "x: f32[N,D], gamma: f32[D]",
                   body, sums, stays, dropped});
  };
  row("softmax", "y[n,d] = exp(x[n,d]) / sum(k: exp(x[n,k]))", 1, none, none);
  row("softmax_named", "m[n] = max(d: x[n,d])\n e[n,d] = exp(x[n,d] - m[n])\n s[n] = sum(d: e[n,d])\n y[n,d] = e[n,d]/s[n]", 1,
      none, none);
  row("log_softmax", "y[n,d] = x[n,d] - log(sum(k: exp(x[n,k])))", 1, none, none);
  row("log_softmax_named",
      "m[n] = stop_gradient(max(d: x[n,d]))\n z[n,d] = x[n,d] - m[n]\n y[n,d] = z[n,d] - log(sum(k: exp(z[n,k])))", 1, none,
      none);
  row("layer_norm",
      "m[n] = mean(d: x[n,d])\n v[n] = mean(d: (x[n,d] - m[n])^2)\n"
      " y[n,d] = (x[n,d] - m[n])/sqrt(v[n] + 1e-5)*gamma[d] + beta[d]",
      4, {0, 2}, {1, 1});
  row("layer_norm_centered",
      "c[n,d] = x[n,d] - sum(k: x[n,k])/D\n r[n] = 1/sqrt(sum(d: c[n,d]*c[n,d])/D + 1e-5)\n"
      " y[n,d] = gamma[d]*(c[n,d]*r[n]) + beta[d]",
      4, {0, 2}, {1, 1});
  row("rms_norm", "y[n,d] = gamma[d]*x[n,d]/sqrt(mean(k: x[n,k]^2) + 1e-5)", 2, {0, 1}, {1, 1});
  row("rms_norm_named", "r[n] = (sum(d: x[n,d]*x[n,d])/D + 1e-5)^-0.5\n h[n,d] = x[n,d]*r[n]\n y[n,d] = h[n,d]*gamma[d]", 2,
      {0, 1}, {1, 1});

  auto norm = [&](const std::string& name, const std::string& inputs, const std::string& body, int sums, int64_t statistics,
                  const std::map<std::string, int64_t>& dims) {
    all.push_back({name, inputs, body, sums, {0, 2}, {1, 1}, false, statistics, dims});
  };
  norm("batch_norm", kImages,
       "m[c] = mean(n,h,w: x[n,c,h,w])\n v[c] = mean(n,h,w: (x[n,c,h,w] - m[c])^2)\n"
       " y[n,c,h,w] = (x[n,c,h,w] - m[c])/sqrt(v[c] + 1e-5)*gamma[c] + beta[c]",
       2, 16, kImageDims);
  norm("batch_norm_named", kImages,
       "m[c] = sum(h,w,n: x[n,c,h,w])/(N*H*W)\n z[n,c,h,w] = x[n,c,h,w] - m[c]\n v[c] = sum(w,n,h: z[n,c,h,w]*z[n,c,h,w])/(N*H*W)\n"
       " i[c] = 1/sqrt(v[c] + 1e-5)\n y[n,c,h,w] = gamma[c]*(z[n,c,h,w]*i[c]) + beta[c]",
       2, 16, kImageDims);
  norm("group_norm", "x: f32[N,G,K,S], gamma: f32[G,K], beta: f32[G,K]",
       "m[n,g] = mean(k,s: x[n,g,k,s])\n v[n,g] = mean(k,s: (x[n,g,k,s] - m[n,g])^2)\n"
       " y[n,g,k,s] = (x[n,g,k,s] - m[n,g])/sqrt(v[n,g] + 1e-5)*gamma[g,k] + beta[g,k]",
       4, 64, kGroupDims);
  norm("group_norm_named", "x: f32[N,G,K,S], gamma: f32[G,K], beta: f32[G,K]",
       "z[n,g,k,s] = x[n,g,k,s] - sum(i,j: x[n,g,i,j])/(K*S)\n r[n,g] = 1/sqrt(sum(k,s: z[n,g,k,s]^2)/(K*S) + 1e-5)\n"
       " h[n,g,k,s] = z[n,g,k,s]*r[n,g]\n y[n,g,k,s] = h[n,g,k,s]*gamma[g,k] + beta[g,k]",
       4, 64, kGroupDims);

  auto after = [&](const std::string& name, const std::string& body, int sums, Optimum stays, const std::string& more = "") {
    all.push_back({name, kProduct + more, "z[n,k] = sum(d: x[n,d]*w[d,k])\n " + body, sums, stays, {stays.large + 1, stays.rows},
                   false, 1024, kProductDims});
  };
  after("matmul_sigmoid", "y[n,k] = 1/(1 + exp(-z[n,k]))", 2, none);
  after("matmul_sigmoid_function", "y[n,k] = sigmoid(z[n,k])", 2, none);
  after("matmul_softmax", "y[n,k] = exp(z[n,k])/sum(l: exp(z[n,l]))", 3, none);
  after("matmul_softmax_named",
        "m[n] = stop_gradient(max(k: z[n,k]))\n e[n,k] = exp(z[n,k] - m[n])\n y[n,k] = e[n,k]/sum(l: e[n,l])", 3, none);
  const std::string scale = ", gamma: f32[K], beta: f32[K]";
  after("matmul_batch_norm",
        "m[k] = mean(n: z[n,k])\n v[k] = mean(n: (z[n,k] - m[k])^2)\n"
        " y[n,k] = (z[n,k] - m[k])/sqrt(v[k] + 1e-5)*gamma[k] + beta[k]",
        4, {1, 1}, scale);
  after("matmul_batch_norm_named",
        "c[n,k] = z[n,k] - sum(i: z[i,k])/N\n r[k] = 1/sqrt(sum(n: c[n,k]^2)/N + 1e-5)\n"
        " y[n,k] = gamma[k]*(c[n,k]*r[k]) + beta[k]",
        4, {1, 1}, scale);
  return all;
}

class StashTable : public ::testing::TestWithParam<Spelling> {};

TEST_P(StashTable, NoMoreThanTheOptimum) {
  const Spelling& s = GetParam();
  Program op = derived("op f(" + s.inputs + ") -> (y) {\n " + s.statements + "\n}");
  for (bool dropped : {false, true}) {
    SCOPED_TRACE(dropped ? "x is dropped" : "x stays");
    const Optimum& optimum = dropped ? s.dropped : s.stays;
    int64_t bytes = static_cast<int64_t>(optimum.large * 4 * 64 * 1024) + 4 * s.row * optimum.rows;
    StashOptions options;
    options.nominal = s.dims;
    if (dropped) options.dropped = {"x"};
    if (s.tight) {
      options.policy = Policy::budget;
      options.budget = bytes;
    }
    StashPlan plan = plan_stash(op, options);
    EXPECT_LE(plan.stash_bytes, bytes) << print(plan.program);
    EXPECT_LE(backward_reductions(plan.program), s.sums) << print(plan.program);
    expect_same_values(op, plan.program);
  }
}

INSTANTIATE_TEST_SUITE_P(Spellings, StashTable, ::testing::ValuesIn(spellings()),
                         [](const auto& of) { return of.param.name; });

// Functions whose output tells the derivative: with x dropped nothing is kept.
class OutputTells : public ::testing::TestWithParam<const char*> {};

// y = function(x), planned for a caller who drops x; it still has its values.
StashPlan planned_without_x(const std::string& function) {
  Program op = derived("op f(x: f32[N]) -> (y) { y[i] = " + function + " }");
  StashOptions options;
  options.dropped = {"x"};
  StashPlan plan = plan_stash(op, options);
  verify(plan.program);
  expect_same_values(op, plan.program);
  return plan;
}

TEST_P(OutputTells, NothingIsKept) {
  StashPlan plan = planned_without_x(GetParam());
  EXPECT_EQ(plan.stash_bytes, 0) << print(plan.program);
}

INSTANTIATE_TEST_SUITE_P(
    Functions, OutputTells,
    ::testing::Values("exp(x[i])", "exp(x[i])^2", "3*exp(2*x[i] + 1)", "2^x[i]", "expm1(x[i])", "tanh(x[i])",
                      "1 - 2/(exp(2*x[i]) + 1)", "2*sigmoid(2*x[i]) - 1", "sigmoid(x[i])", "1/(1 + exp(-x[i]))",
                      "exp(x[i])/(1 + exp(x[i]))", "0.5*(1 + tanh(x[i]/2))", "1 - 1/(1 + exp(x[i]))", "sqrt(x[i])",
                      "x[i]^0.5", "sqrt(x[i] + 1)", "rsqrt(x[i])", "1/sqrt(x[i])", "x[i]^-0.5", "1/x[i]", "x[i]^-1",
                      "5/(x[i] + 2)", "x[i]^2.5", "x[i]^-1.5", "x[i]^3", "x[i]*x[i]*x[i]", "x[i]^-3", "x[i]^(1/3)",
                      "3*x[i]^1.7", "x[i]^(-0.3)", "log(x[i])", "log(2*x[i])", "log1p(x[i])", "log(sqrt(x[i]))",
                      "softplus(x[i])", "log(1 + exp(x[i]))", "log1p(exp(2*x[i]))/2", "-log(sigmoid(-x[i]))",
                      "-log(1/(1 + exp(x[i])))", "log(sigmoid(x[i]))", "relu(x[i])", "if x[i] > 0 then x[i] else 0",
                      "if x[i] <= 0 then 0 else 2*x[i]", "if x[i] > 0 then x[i] else 0.01*x[i]",
                      "if x[i] > 0 then x[i] else exp(x[i]) - 1", "if x[i] > 0 then x[i] else expm1(x[i])",
                      "if x[i] <= 0 then 1.5*(exp(x[i]) - 1) else x[i]",
                      "1.05*(if x[i] > 0 then x[i] else 1.67*(exp(x[i]) - 1))", "tan(x[i])"));

// Where the output does not tell, x must be kept: a sign that is lost, a tie that has a gradient of its own, a branch
// that is not decided by the sign.
class OutputDoesNotTell : public ::testing::TestWithParam<const char*> {};

TEST_P(OutputDoesNotTell, XIsKept) {
  StashPlan plan = planned_without_x(GetParam());
  EXPECT_GT(plan.stash_bytes, 0) << print(plan.program);
}

INSTANTIATE_TEST_SUITE_P(Functions, OutputDoesNotTell,
                         ::testing::Values("x[i]^2", "log(x[i]^2)", "tanh(x[i]) + 100", "1/(x[i]*x[i])", "x[i]^-4", "abs(x[i])",
                                           "max(x[i], 0)", "sin(x[i])", "if x[i] < 0 then 0 else x[i]", "if x[i] > 1 then x[i] else 0",
                                           "if x[i] > 0 then 0.01*x[i] else 0", "if x[i] > 0 then x[i] else exp(x[i]) - 0.5",
                                           "if x[i] > 0 then x[i] else -0.1*x[i]"));

TEST(OutputTellsMore, ABranchKnowsTheOutputOnlyAtItsOwnPlace) {
  Program op = derived(
      "op f(x: f32[N]) -> (y, z) {\n y[i] = if x[i] > 0 then x[i] else exp(x[i]) - 1\n"
      " z[i in 0..N] = if x[i] > 0 then 0 else exp(x[N-1-i])\n}");
  expect_same_values(op, plan_stash(op).program);
  StashOptions options;
  options.dropped = {"x"};
  expect_same_values(op, plan_stash(op, options).program);
}

TEST(OutputTellsMore, AnOutputIsNotReadBesideTheInputToSaveLittle) {
  for (const char* text : {"op f(x: f32[N]) -> (y) { y[i] = x[i]*(1/(1 + exp(-x[i]))) }",
                           "op f(x: f32[N]) -> (y) { y[i] = x[i]*sigmoid(x[i]) }"}) {
    StashPlan plan = plan_stash(derived(text));
    for (const Definition& d : plan.program.backward.definitions)
      EXPECT_EQ(tensors_read(*plan.program.arena, d.body).size(), 2u) << print(plan.program);  // dy and x
  }
}

// exp(x) is y + 1, but 1/exp(x) is not 1/(y + 1) where y is -1 to the last bit.
TEST(OutputTellsMore, WhatIsShiftedIsNotDividedBy) {
  Program op = derived("op f(x: f32[N], w: f32[N]) -> (y, z) {\n y[i] = exp(x[i]) - 1\n z[i] = w[i]/exp(x[i])\n}");
  for (bool dropped : {false, true}) {
    StashOptions options;
    if (dropped) options.dropped = {"x"};
    StashPlan plan = plan_stash(op, options);
    Arrays in = {{"x", array_of(DType::f32, {1}, {-30})}, {"w", array_of(DType::f32, {1}, {1})},
                 {"dy", array_of(DType::f32, {1}, {0})}, {"dz", array_of(DType::f32, {1}, {1})}};
    double wanted = std::exp(30);
    EXPECT_NEAR(evaluate(plan.program, in, {{"N", 1}}).at("grad_w").at(0), wanted, 1e-5 * wanted) << print(plan.program);
  }
}

// x[i-1] stands where it is guarded; a difference kept everywhere would read x[-1].
TEST(OutputTellsMore, WhatAComparisonGuardsIsNotKept) {
  Program op = derived(
      "op f(x: f32[N], t: f32[N]) -> (y) { y[i] = if i > 0 && x[i-1] - t[i-1] > 0 then sin(x[i])*x[i] else t[i] }");
  StashOptions options;
  options.dropped = {"x", "t"};
  expect_same_values(op, plan_stash(op, options).program);
}

// The rows of a normalization before a matrix product: its output may be far larger than what the sum goes over.
TEST(OutputTellsMore, ASumIsNotMovedToALargerOutputForNothing) {
  Program op = derived(
      "op f(x: f32[N,D], w: f32[D,V]) -> (y) {\n r[n] = 1/sqrt(sum(d: x[n,d]^2))\n y[n,v] = sum(d: x[n,d]*r[n]*w[d,v])\n}");
  StashPlan plan = plan_stash(op);
  EXPECT_EQ(print(plan.program).find("dy[n,v] * y[n,v]"), std::string::npos) << print(plan.program);
}

// Where an output is scaled by what may be 0, it does not give the sum back.
TEST(OutputTellsMore, ASumIsNotTakenFromAnOutputByDivision) {
  Program op = derived(
      "op f(s: f32[N,J], v: f32[J,D], g: f32[D]) -> (o, u) {\n p[n,j] = exp(s[n,j]) / sum(i: exp(s[n,i]))\n"
      " o[n,d] = g[d]*sum(j: p[n,j]*v[j,d])\n u[n,d] = sum(j: p[n,j]*v[j,d])^2\n}");
  Arrays in = {{"s", array_of(DType::f32, {1, 2}, {0.5, 1})}, {"v", array_of(DType::f32, {2, 1}, {1, 2})},
               {"g", array_of(DType::f32, {1}, {0})}, {"do", array_of(DType::f32, {1, 1}, {1})},
               {"du", array_of(DType::f32, {1, 1}, {1})}};
  StashPlan plan = plan_stash(op);
  Arrays wanted = evaluate(op, in), got = evaluate(plan.program, in);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_NEAR(got.at("grad_s").at(i), wanted.at("grad_s").at(i), 1e-5) << print(plan.program);
}

// With x dropped, x - t is kept in its place: one large tensor either way, and t need not be read.
TEST(OutputTellsMore, ADifferenceIsKeptInPlaceOfADroppedInput) {
  for (const char* body : {"y = mean(n,d: (x[n,d] - t[n,d])^2)", "y = mean(n,d: (t[n,d] - x[n,d])^2)",
                           "r[n,d] = x[n,d] - t[n,d]\n"
                           " y = mean(n,d: if abs(r[n,d]) < 1 then 0.5*r[n,d]*r[n,d] else abs(r[n,d]) - 0.5)"}) {
    Program op = derived(std::string("op f(x: f32[N,D], t: f32[N,D] const) -> (y) {\n ") + body + "\n}");
    StashOptions options;
    options.dropped = {"x"};
    StashPlan plan = plan_stash(op, options);
    EXPECT_EQ(plan.stash_bytes, 4 * 64 * 64) << print(plan.program);
    for (const Definition& d : plan.program.backward.definitions)
      for (TensorId t : tensors_read(*plan.program.arena, d.body)) EXPECT_NE(plan.program.tensors[t].name, "t") << print(plan.program);
    expect_same_values(op, plan.program);
  }
}

// The row sum of p*dp is that of do*o: five sums are those of the matrix products and the one over D.
TEST(OutputTellsMore, AttentionHasNoRowSumOfItsOwn) {
  for (const char* p : {"p[b,i,j] = exp(s[b,i,j] - m[b,i]) / sum(l: exp(s[b,i,l] - m[b,i]))\n o[b,i,d] = sum(j: p[b,i,j]*v[b,j,d])",
                        "e[b,i,j] = exp(s[b,i,j] - m[b,i])\n o[b,i,d] = sum(j: e[b,i,j]*v[b,j,d]) / sum(j: e[b,i,j])"}) {
    Program op = derived(std::string("op f(q: f32[B,S,D], k: f32[B,T,D], v: f32[B,T,D]) -> (o) {\n"
                                     " s[b,i,j] = sum(d: q[b,i,d]*k[b,j,d])/8\n m[b,i] = max(j: s[b,i,j])\n ") +
                         p + "\n}");
    StashOptions options;
    options.nominal = {{"B", 8}, {"S", 128}, {"T", 128}, {"D", 64}};
    StashPlan plan = plan_stash(op, options);
    EXPECT_LE(backward_reductions(plan.program), 5) << print(plan.program);
    EXPECT_NE(print(plan.program).find("* o[b,i,d])"), std::string::npos) << print(plan.program);
    expect_same_values(op, plan.program);
  }
}

TEST(OutputTellsMore, ALossOverLogSoftmaxHasAtMostOneSum) {
  for (const char* body : {"m[n] = max(d: x[n,d])\n l[n,d] = x[n,d] - m[n] - log(sum(k: exp(x[n,k] - m[n])))\n y = mean(n: -l[n,t[n]])",
                           "y = -sum(n: x[n,t[n]] - log(sum(k: exp(x[n,k]))))/N"}) {
    Program op = derived(std::string("op f(x: f32[N,D], t: i32[N] const) -> (y) {\n ") + body + "\n}");
    StashOptions options;
    options.nominal = {{"N", 64}, {"D", 1024}};
    StashPlan plan = plan_stash(op, options);
    EXPECT_LE(backward_reductions(plan.program), 1) << print(plan.program);
    EXPECT_LE(plan.stash_bytes, 2 * 4 * 64) << print(plan.program);
    expect_same_values(op, plan.program);
  }
}

// --- how the table counts ---

using bench::BackwardCounts;
using bench::BackwardCounter;
using bench::BackwardGraph;
using Kind = bench::GraphNode::Kind;

BackwardCounts counted(const BackwardGraph& g) { return BackwardCounter(g, 100).count(); }

TEST(BackwardGraphTest, MapsAreFused) {  // dy*y*(1-y)
  BackwardGraph g{{{Kind::leaf, 100}, {Kind::leaf, 100}, {Kind::map, 100, 100, {1}}, {Kind::map, 100, 100, {0, 1}},
                   {Kind::map, 100, 100, {2, 3}}},
                  {4}};
  BackwardCounts c = counted(g);
  EXPECT_EQ(c.sums, 0);
  EXPECT_EQ(c.passes, 3);  // dy and y read, the gradient written
  EXPECT_EQ(c.flops, 300);
}

TEST(BackwardGraphTest, ASumMustBeCompleteBeforeItIsRead) {  // softmax: y*(dy - sum(dy*y))
  BackwardGraph g{{{Kind::leaf, 100}, {Kind::leaf, 100}, {Kind::map, 100, 100, {0, 1}}, {Kind::sum, 10, 100, {2}},
                   {Kind::map, 100, 100, {0, 3}}, {Kind::map, 100, 100, {4, 1}}},
                  {5}};
  BackwardCounts c = counted(g);
  EXPECT_EQ(c.sums, 1);
  EXPECT_EQ(c.passes, 5);  // both twice, the gradient written
}

TEST(BackwardGraphTest, ASumWaitsForASweepThatReadsTheSame) {
  // a = sum(x), b = sum(z), gradients x*a and the sum of z*a: b shares the later sweep, which reads z anyway
  BackwardGraph g{{{Kind::leaf, 100}, {Kind::leaf, 100}, {Kind::sum, 10, 100, {0}}, {Kind::sum, 10, 100, {1}},
                   {Kind::map, 100, 100, {0, 2}}, {Kind::map, 100, 100, {1, 2}}, {Kind::sum, 10, 100, {5}}},
                  {3, 4, 6}};
  BackwardCounts c = counted(g);
  EXPECT_EQ(c.sums, 3);
  EXPECT_EQ(c.passes, 4);  // x; x and z; a gradient
}

TEST(BackwardGraphTest, ALargeSumIsWrittenAndReadAndDeadNodesAreNot) {  // dy*transposed(w), then times y
  BackwardGraph g{{{Kind::leaf, 100}, {Kind::leaf, 10}, {Kind::leaf, 100}, {Kind::sum, 100, 2000, {0, 1}},
                   {Kind::map, 100, 100, {3, 2}}, {Kind::sum, 10, 100, {0}}},
                  {4}};
  BackwardCounts c = counted(g);
  EXPECT_EQ(c.sums, 1);
  EXPECT_EQ(c.flops, 2100);
  EXPECT_EQ(c.passes, 5);  // dy; the product written, read; y; the gradient
}

}  // namespace
}  // namespace xhat::stash_table_test
