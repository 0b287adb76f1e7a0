// The classic policy for real: each row's kernels are the groups that the policy finds, they are what runs, and they compute
// what the evaluator says.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "ad/gradient.h"
#include "ad/random_inputs.h"
#include "fusion/relay_kernels.h"
#include "runtime/explain.h"
#include "tests/golden.h"
#include "tests/runtime_helper.h"

namespace xhat {
namespace {

using namespace xhat::testing;

using Names = std::vector<std::string>;

struct Row {
  std::string name, text;
  Names kernels;  // of infer, by their results
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

const Row kRows[] = {
    {"R1_scalars_stay_inside",
     "op f(x: f32[N,D], c: f32[N,D]) -> (y) { a[n,d] = x[n,d] / c[n,d]; b[n,d] = a[n,d] * 2; y[n,d] = relu(b[n,d]) }", {"y"}},
    {"R2_chain_of_poolings",
     R"(op f(x: f32[3,4*M,4*M], c: f32[3,4*M,4*M]) -> (y) {
       d[k,i,j] = x[k,i,j] / c[k,i,j]
       m[k,i,j] = d[k,i,j] * 2
       r[k,i,j] = relu(m[k,i,j])
       p[k, i in 0..2*M, j in 0..2*M] = max(u in 0..2, v in 0..2: r[k,2*i+u,2*j+v])
       s[k,i,j] = relu(p[k,i,j])
       q[k, i in 0..M, j in 0..M] = max(u in 0..2, v in 0..2: s[k,2*i+u,2*j+v])
       y[k,i,j] = relu(q[k,i,j])
     })",
     {"r", "s", "y"}},
    {"R3_conv_bias_relu",
     R"(op f(x: f32[C,H,W], w: f32[K,C,3,3], b: f32[K]) -> (y) {
       c[k, i in 0..H, j in 0..W] = sum(ch, r, s: x[ch,i+r-1,j+s-1 else 0] * w[k,ch,r,s])
       a[k,i,j] = c[k,i,j] + b[k]
       y[k,i,j] = relu(a[k,i,j])
     })",
     {"y"}},
    {"R4_two_products",
     "op f(a: f32[N,M], b: f32[M,K], c: f32[K,N]) -> (y) { d[i,j] = sum(k: a[i,k]*b[k,j]); y[i,j] = sum(k: d[i,k]*c[k,j]) }",
     {"d", "y"}},
    {"R5_diamond_of_elementwise",
     "op f(a: f32[N,M], b: f32[M,K]) -> (y) { c[i,j] = sum(k: a[i,k]*b[k,j]); e[i,j] = exp(c[i,j]); y[i,j] = c[i,j] * e[i,j] }",
     {"y"}},
    {"R5_injective_on_the_path",
     "op f(a: f32[N,M], b: f32[M,N]) -> (y) { c[i,j] = sum(k: a[i,k]*b[k,j]); t[i,j] = c[j,i]; y[i,j] = c[i,j] * t[i,j] }", {"c", "y"}},
    {"R6_product_is_broadcast",
     "op f(a: f32[1,M], b: f32[M,K], y0: f32[K,K]) -> (y) { c[i in 0..1,j] = sum(k: a[i,k]*b[k,j]); y[i,j] = c[0,j] + y0[i,j] }",
     {"c", "y"}},
    {"R7_product_is_also_a_result", "op f(a: f32[N,M], b: f32[M,K]) -> (c, y) { c[i,j] = sum(k: a[i,k]*b[k,j]); y[i,j] = relu(c[i,j]) }",
     {"c", "y"}},
    {"R8_reduction_takes_no_epilogue", "op f(x: f32[N,D]) -> (y) { a[n,d] = relu(x[n,d]); s[n] = sum(d: a[n,d]); y[n] = exp(s[n]) }",
     {"s", "y"}},
    {"R9_prologue_of_a_reduction", "op f(x: f32[N,D]) -> (s) { e[n,d] = exp(x[n,d]); s[n] = sum(d: e[n,d]) }", {"s"}},
    {"R9_transpose_is_no_prologue", "op f(x: f32[N,D]) -> (s) { t[d,n] = x[n,d]; s[d] = sum(n: t[d,n]) }", {"t", "s"}},
    {"R10_two_reductions",
     "op f(x: f32[N,D]) -> (y) { s[n] = sum(d: x[n,d]); m[n] = max(d: x[n,d]); y[n] = s[n] + m[n] }", {"s", "m", "y"}},
    {"R11_softmax",
     "op f(x: f32[N,D]) -> (y) { m[n] = max(d: x[n,d]); e[n,d] = exp(x[n,d] - m[n]); y[n,d] = e[n,d] / sum(k: e[n,k]) }",
     {"m", "e", "y_sum", "y"}},
    {"R11_layer_norm",
     R"(op f(x: f32[N,D]) -> (y) {
       m[n] = sum(d: x[n,d]) / D
       c[n,d] = x[n,d] - m[n]
       v[n] = sum(d: c[n,d]^2) / D
       y[n,d] = c[n,d] / sqrt(v[n] + 1e-5)
     })",
     {"m_sum", "c", "v_sum", "y"}},
    {"R13_resnet_block",
     R"(op f(x: f32[C,H,W], w: f32[C,C,3,3], u: f32[C,C,3,3], g: f32[C], b: f32[C], h: f32[C], e: f32[C]) -> (y) {
       c1[k, i in 0..H, j in 0..W] = sum(q, r, s: x[q,i+r-1,j+s-1 else 0] * w[k,q,r,s])
       n1[k,i,j] = c1[k,i,j] * g[k] + b[k]
       r1[k,i,j] = relu(n1[k,i,j])
       c2[k, i in 0..H, j in 0..W] = sum(q, r, s: r1[q,i+r-1,j+s-1 else 0] * u[k,q,r,s])
       n2[k,i,j] = c2[k,i,j] * h[k] + e[k]
       y[k,i,j] = relu(n2[k,i,j] + x[k,i,j])
     })",
     {"r1", "y"}},
    {"R14_two_results", "op f(x: f32[N]) -> (a, b) { a[i] = exp(x[i]); b[i] = relu(a[i]) }", {"a", "b"}},
    {"R15_one_op_under_two_results",
     "op f(x: f32[N]) -> (a, b) { e[i] = exp(x[i]); a[i] = relu(e[i]); b[i] = tanh(e[i]) }", {"e", "a", "b"}},
    {"R16_around_opaque",
     "op f(x: f32[N,D], ids: i32[N]) -> (y) {"
     " e[n,d] = exp(x[n,d]); s[k in 0..100, d] = sum(n if ids[n] == k: e[n,d]); y[k,d] = relu(s[k,d]) }",
     {"e", "s", "y"}},
    {"conv2d_fuse",
     R"(op f(x: f32[H,W], w1: f32[3,3], w2: f32[1,1], w3: f32[3,3]) -> (z) {
       a[i,j] = x[i,j] + 1
       y[i in 0..H, j in 0..W] = sum(r, s: a[i+r-1,j+s-1 else 0] * w1[r,s])
       y1[i,j] = 1 + y[i,j]
       y2[i,j] = y[i,j] + y1[i,j]
       z2[i in 0..H, j in 0..W] = sum(r, s: y2[i+r,j+s] * w2[r,s])
       z3[i in 0..H, j in 0..W] = sum(r, s: y2[i+r-1,j+s-1 else 0] * w3[r,s])
       z[i,j] = z2[i,j] + z3[i,j]
     })",
     {"a", "y2", "z3", "z"}},
    {"concatenate",
     R"(op f(x: f32[2*M,2*M]) -> (z) {
       p[i in 0..M, j in 0..M] = max(u in 0..2, v in 0..2: x[2*i+u,2*j+v])
       up[i in 0..2*M, j in 0..2*M] = p[i/2,j/2]
       c[i in 0..4*M, j in 0..2*M] = if i < 2*M then up[i,j] else x[i-2*M,j]
       z[i,j] = c[i,j] + 1
     })",
     {"p", "z"}},
    {"tuple_get_elemwise",
     R"(op f(x: f32[N,D], w: f32[3*D,D]) -> (y) {
       d[n,o] = sum(i: x[n,i] * w[o,i])
       a[n, j in 0..D] = sigmoid(d[n,j])
       b[n, j in 0..D] = tanh(d[n,j+D])
       c[n, j in 0..D] = exp(d[n,j+2*D])
       y[n,j] = a[n,j] + b[n,j] * c[n,j]
     })",
     {"d", "y"}},
    {"parallel_injective",
     "op f(x: f32[N,N]) -> (w) { y[i,j] = x[i,j] + 1; z[i,j] = y[i,j]; u[i,j] = y[j,i]; w[i,j] = z[i,j] * u[i,j] }", {"w"}},
    {"take",
     "op f(x: f32[10,D], ids: i32[4]) -> (y) {"
     " c[i, d in 0..2*D] = if d < D then x[i,d] else x[i,d-D]; y[k,d] = c[clamp(ids[k], 0, 9), d] }",
     {"y"}},
    {"extract_conv_net",
     R"(op f(x: f32[N,N], w: f32[N,N]) -> (y) {
       c0[i,j] = sum(k: x[i,k] * w[k,j])
       c1[i,j] = sum(k: c0[i,k] * w[k,j])
       c2[i,j] = sum(k: c0[i,k] * w[j,k])
       c3[i,j] = sum(k: c0[k,i] * w[k,j])
       a[i,j] = c2[i,j] + c3[i,j]
       y[i,j] = c1[i,j] + a[i,j]
     })",
     {"c0", "c3", "a", "y"}},
    {"chained_products_three",
     "op f(a: f32[16,16], b: f32[16,16], c: f32[16,16]) -> (y) { d[i,j] = sum(k: a[i,k]*b[k,j]); y[i,j] = sum(k: d[i,k]*c[k,j]) }",
     {"d", "y"}},
    // What is dear to repeat inside a reduction stays a member of its kernel.
    {"dear_prologue", "op f(x: f32[N,D], v: f32[N]) -> (s) { t[n] = tanh(v[n])^3; s[n] = sum(d: x[n,d] * x[n,d] * t[n]) }", {"s"}},
};

Names results(const KernelPlan& plan) {
  Names names;
  for (const Kernel& k : plan.kernels) names.push_back(k.name);
  return names;
}

CompileOptions relay() {
  CompileOptions o;
  o.fusion.policy = FusePolicy::relay;
  o.threads = 1;
  return o;
}

// Inputs, integers within 0..3, and cotangents.
Arrays data_for(const Program& derived, const DimValues& dims) {
  Arrays data;
  for (const auto* list : {&derived.inputs, &derived.cotangents})
    for (TensorId t : *list) {
      const Tensor& x = derived.tensor(t);
      Array a = zeros(x.type, shape_of(derived, t, dims));
      if (a.real()) a = random_normals(x.type, shape_of(derived, t, dims), 7 + data.size());
      for (size_t i = 0; i < a.integers.size(); ++i) a.integers[i] = static_cast<int64_t>(i * 7 % 4);
      data[x.name] = a;
    }
  return data;
}

class RelayKernels : public ::testing::TestWithParam<Row> {};

TEST_P(RelayKernels, AreTheGroupsAndComputeTheValues) {
  Program op = parse_op(GetParam().text), derived = gradient(op);
  CompiledOp kernels = compile(op, relay());
  DimValues dims = sample_dims(op, 3);
  EXPECT_EQ(results(kernels.plan(CompiledOp::Phase::infer, dims)), GetParam().kernels);
  Arrays data = data_for(derived, dims);
  EXPECT_EQ(difference(evaluate_on(op, data, dims), run_infer(kernels, data, dims), 2e-4), "");
  EXPECT_EQ(difference(evaluate_on(derived, data, dims), run_both(kernels, data, dims), 2e-4), "");
  Call call(kernels.program(), dims);
  call.give(op.inputs, data);
  call.expect(kernels.program().outputs);
  const Arrays before = call.arrays({op.inputs});
  auto counts = kernels.infer(call.arguments({kernels.program().inputs, kernels.program().outputs}));
  EXPECT_EQ(call.arrays({op.inputs}), before) << "inputs are never written";
  EXPECT_EQ(static_cast<size_t>(counts.kernels), GetParam().kernels.size());
}
INSTANTIATE_TEST_SUITE_P(Rows, RelayKernels, ::testing::ValuesIn(kRows), [](const auto& row) { return row.param.name; });

// N4: E = (A B^T) D^T on known numbers, in one kernel with a row of C (the default policy) and in two.
TEST(RelayPolicy, ChainedProductsOnKnownNumbers) {
  Program op = parse_op(R"(op chained(A: f32[8,8], B: f32[8,8], D: f32[8,8]) -> (E) {
    C[i,j] = sum(k: A[i,k] * B[j,k])
    E[i,j] = sum(k: C[i,k] * D[j,k])
  })");
  auto matrix = [](auto f) {
    Array a = zeros(DType::f32, {8, 8});
    for (int i = 0; i < 8; ++i)
      for (int k = 0; k < 8; ++k) a.reals[static_cast<size_t>(8 * i + k)] = f(i, k);
    return a;
  };
  Arrays plain = {{"A", matrix([](int i, int) { return i + 1; })},
                  {"B", matrix([](int j, int) { return j + 1; })},
                  {"D", matrix([](int, int) { return 1; })}};
  Arrays mixed = {{"A", matrix([](int i, int k) { return i + k; })},
                  {"B", matrix([](int j, int k) { return (j * k) % 5; })},
                  {"D", matrix([](int j, int k) { return j - k; })}};
  for (FusePolicy policy : {FusePolicy::full, FusePolicy::relay}) {
    CompileOptions options;
    options.fusion.policy = policy;
    CompiledOp kernels = compile(op, options);
    const KernelPlan plan = kernels.plan(CompiledOp::Phase::infer, {});
    EXPECT_EQ(plan.kernels.size(), policy == FusePolicy::full ? 1u : 2u);
    EXPECT_EQ(plan.flops, 2048) << "nothing is computed twice";
    Array e = run_infer(kernels, plain, {}).at("E");
    for (size_t i = 0; i < 64; ++i) EXPECT_EQ(e.reals[i], 288.0 * static_cast<double>(i / 8 + 1));
    e = run_infer(kernels, mixed, {}).at("E");
    EXPECT_EQ((std::vector<double>(e.reals.begin(), e.reals.begin() + 4)), (std::vector<double>{-1345, -1000, -655, -310}));
    EXPECT_EQ(e.reals[63], 3016);
    double sum = 0;
    for (double x : e.reals) sum += x;
    EXPECT_EQ(sum, -16304);
  }
}

TEST(RelayPolicy, LevelsAndLimitsAreOptions) {
  Program op = parse_op(kRows[1].text);
  auto count = [&](const fusion::RelayOptions& limits) {
    CompileOptions options = relay();
    options.fusion.relay = limits;
    CompiledOp kernels = compile(op, options);
    DimValues dims = {{"M", 3}};
    Arrays data = data_for(gradient(op), dims);
    EXPECT_EQ(difference(evaluate_on(op, data, dims), run_infer(kernels, data, dims), 2e-4), "");
    return kernels.plan(CompiledOp::Phase::infer, dims).kernels.size();
  };
  EXPECT_EQ(count({.opt_level = 0}), 7u);
  EXPECT_EQ(count({.opt_level = 2}), 3u);
  EXPECT_EQ(count({.max_fuse_depth = 2}), 4u);
}

TEST(RelayPolicy, ExplainShowsTheGraph) {
  std::string said = to_text(explain(parse_op(kRows[11].text), relay()));
  EXPECT_NE(said.find("forward: 3 kernels, 2 reductions\n"), std::string::npos) << said;
  EXPECT_NE(said.find("1  s   comm_reduce  y             y (elemwise)    {s}\n"), std::string::npos) << said;
  EXPECT_NE(said.find("(apart: s is a reduction: nothing follows in its kernel)"), std::string::npos) << said;
}

TEST(RelayPolicy, ForwardKeepsWhatTheBackwardWants) {
  std::ifstream file(XHAT_SOURCE_DIR "/examples/batch_norm.xh");
  std::stringstream text;
  text << file.rdbuf();
  Program op = parse_op(text.str());
  CompileOptions options = relay();
  options.stash.policy = StashOptions::Policy::largest;
  CompiledOp kernels = compile(op, options);
  DimValues dims = {{"N", 3}, {"C", 2}, {"H", 4}, {"W", 5}};
  EXPECT_FALSE(stashes(kernels.program()).empty());
  Program derived = gradient(op);
  Arrays data = data_for(derived, dims);
  EXPECT_EQ(difference(evaluate_on(derived, data, dims), run_both(kernels, data, dims), 2e-4), "");
}

TEST(RelayPolicy, DepthIsLimitedInProgramsToo) {
  std::string text = "op f(x: f32[N]) -> (y) {\n", last = "x";
  for (int i = 0; i < 299; ++i) {
    std::string next = "e" + std::to_string(i);
    text += next + "[i] = tanh(" + last + "[i])\n";
    last = next;
  }
  Program op = parse_op(text + "y[i] = tanh(" + last + "[i])\n}");
  xhat::RelayKernels kernels = relay_kernels(infer_program(with_written_ops(op, op)));
  ASSERT_EQ(kernels.groups.size(), 2u);
  EXPECT_EQ(kernels.groups[0].definitions.size(), 256u);
  EXPECT_EQ(kernels.groups[1].definitions.size(), 44u);
  EXPECT_EQ(kernels.program.body.definitions.size(), 2u);
}

}  // namespace
}  // namespace xhat
