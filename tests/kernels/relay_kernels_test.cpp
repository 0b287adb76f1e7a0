// The classic policy for real: each row's kernels are the groups that the policy finds, they are what runs, and they compute
// what the evaluator says.
#include <gtest/gtest.h>

#include "ad/reverse/gradient.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/relay_helper.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::relay_kernels_test {
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
    {"R2_chain_of_poolings", kChainOfPoolings, {"r", "s", "y"}},
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
    {"R10_two_reductions", kTwoReductions, {"s", "m", "y"}},
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

}  // namespace
}  // namespace xhat::relay_kernels_test
