#include "tests/helpers/anchor_ops.h"

#include <fmt/format.h>

#include <algorithm>

#include "expr/index/dims.h"

namespace xhat::testing {
namespace {

// One output y over two 10x10 matrices.
std::string of_two(const std::string& statement) {
  return "op f(a: f64[10,10], b: f64[10,10]) -> (y) { " + statement + " }";
}

std::string convolution(int kernel, int stride, int dilation) {
  int out = (10 - dilation * (kernel - 1) - 1) / stride + 1;
  return fmt::format(
      "op conv(x: f64[1,2,10,10], w: f64[5,2,{0},{0}]) -> (y) {{ y[n,o,i in 0..{3},j in 0..{3}] = "
      "sum(c, r, s: x[n,c,{1}*i+{2}*r,{1}*j+{2}*s] * w[o,c,r,s]) }}",
      kernel, stride, dilation, out);
}

std::string max_pool(int kernel, int stride) {
  int out = (10 - kernel) / stride + 1;
  return fmt::format("op pool(x: f64[1,2,10,10]) -> (y) {{ y[n,c,i in 0..{2},j in 0..{2}] = "
                     "max(r in 0..{0}, s in 0..{0}: x[n,c,{1}*i+r,{1}*j+s]) }}",
                     kernel, stride, out);
}

const char* const kResidual = R"(
  t[n,o,i in 0..5,j in 0..5] = sum(c, r, s: x[n,c,i+r-1,j+s-1 else 0] * w[o,c,r,s])
  u[n,o,i,j] = x[n,o,i,j] + t[n,o,i,j]
  v[n,o,i in 0..5,j in 0..5] = sum(c, r, s: u[n,c,i+r-1,j+s-1 else 0] * w[o,c,r,s])
  z[n,o,i,j] = x[n,o,i,j] + v[n,o,i,j]
  flat[n,p in 0..50] = z[n,p/25,p/5%5,p%5]
)";
std::string after_residual(const std::string& statements) {
  return "op f(x: f64[1,2,5,5], w: f64[2,2,3,3]) -> (y) {" + std::string(kResidual) + statements + "\n}";
}

}  // namespace

std::vector<AnchorOp> tvm_ops() {
  std::vector<AnchorOp> ops = {
      {"identity", of_two("y[i,j] = a[i,j]")},
      {"add", of_two("y[i,j] = a[i,j] + b[i,j]")},
      {"add_transpose", of_two("y[i,j] = a[i,j] + a[j,i]")},
      {"floor", of_two("y[i,j] = floor(a[i,j])")},
      {"ceil", of_two("y[i,j] = ceil(a[i,j])")},
      {"trunc", of_two("y[i,j] = sign(a[i,j]) * floor(abs(a[i,j]))")},
      {"round", of_two("y[i,j] = round(a[i,j])")},
      {"add_exp_transpose", of_two("y[i,j] = a[i,j] + exp(a[j,i])")},
      {"log_abs", of_two("y[i,j] = log(0.1 + abs(a[i,j] + exp(a[j,i])))")},
      {"sigmoid", of_two("y[i,j] = sigmoid(a[i,j] * a[i,j] * a[j,i])"), -2, 2},
      {"tanh", of_two("y[i,j] = tanh(a[i,j] * a[i,j] * a[j,i])"), -1, 1},
      {"sqrt", of_two("y[i,j] = sqrt(a[i,j] * a[i,j] * a[j,i])"), 0.1, 10},
      {"power", of_two("y[i,j] = abs(a[i,j])^a[j,i]"), -4, 4},
      {"times_transpose", of_two("y[i,j] = a[i,j] * a[j,i]")},
      {"times_sum", of_two("y[i,j] = a[i,j] * (b[j,i] + a[j,i])")},
      {"trace_of_square", of_two("y[i] = sum(k: a[i,k] * a[k,i])")},
      {"sum_not_of_j", of_two("y[i,j in 0..10] = sum(k: a[i,k] * a[k,i] + 5)")},
      {"max_of_products", of_two("y[i,j] = max(k: a[i,k] * a[k,j] + 5)")},
      {"diagonal_less_clamped", of_two("y[i,j in 0..10] = sum(k: a[k,k] - a[min(j+k, 9),j] * a[i,k])")},
      {"product", of_two("y[i] = prod(k: a[i,k] + a[k,i])"), -2, 2},
      {"reversed_dot", "op f(x: f64[10]) -> (y) { y = sum(i in 0..10: (x[i] + x[9-i]) * (x[i] * x[9-i])) }"},
      {"einsum_diagonal", "op f(x: f64[3,3]) -> (y) { y[i in 0..3] = x[i,i] }"},
      {"conv_padded", "op f(x: f64[1,2,4,4], w: f64[5,2,3,3]) -> (y) { y[n,o,i in 0..4,j in 0..4] = "
                      "sum(c, r, s: x[n,c,i+r-1,j+s-1 else 0] * w[o,c,r,s]) }"},
      {"conv_relu_conv", R"(op f(x: f64[1,2,4,4], w: f64[5,2,3,3], v: f64[2,5,3,3]) -> (y) {
         t[n,o,i in 0..4,j in 0..4] = sum(c, r, s: x[n,c,i+r-1,j+s-1 else 0] * w[o,c,r,s])
         y[n,o,i in 0..4,j in 0..4] = sum(c, r, s: relu(t[n,c,i+r-1,j+s-1 else 0]) * v[o,c,r,s]) })"},
      {"conv_with_broadcast", R"(op f(x: f64[1,2,4,4], b: f64) -> (y) {
         w[o in 0..5,c in 0..2,r in 0..3,s in 0..3] = b
         y[n,o,i in 0..4,j in 0..4] = sum(c, r, s: x[n,c,i+r-1,j+s-1 else 0] * w[o,c,r,s]) })"},
      {"average_pool", "op f(x: f64[1,2,4,4]) -> (y) { y[n,c,i in 0..2,j in 0..2] = sum(r in 0..2, s in 0..2: x[n,c,2*i+r,2*j+s]) / 4 }"},
      {"max_pool", "op f(x: f64[1,2,4,4]) -> (y) { y[n,c,i in 0..2,j in 0..2] = max(r in 0..2, s in 0..2: x[n,c,2*i+r,2*j+s]) }"},
      {"reshape_to_32", "op f(x: f64[1,2,5,5]) -> (y) { y[n,p in 0..32] = x[n,p/25,p/5%5,p%5] }"},
      {"reshape_to_50", "op f(x: f64[1,2,5,5]) -> (y) { y[n,p in 0..50] = x[n,p/25,p/5%5,p%5] }"},
      {"residual", after_residual("y[n,p] = flat[n,p]")},
      {"residual_softmax", after_residual("e[n,p] = exp(flat[n,p] - max(q: flat[n,q]))\ny[n,p] = e[n,p] / sum(q: e[n,q])"), -1, 1},
      {"residual_sigmoid", after_residual("y[n,p] = sigmoid(flat[n,p])"), -1, 1},
      {"residual_tanh", after_residual("y[n,p] = tanh(flat[n,p])"), -1, 1},
      {"residual_log_softmax",
       after_residual("m[n] = max(q: flat[n,q])\ny[n,p] = flat[n,p] - m[n] - log(sum(q: exp(flat[n,q] - m[n])))"), -1, 1},
      {"concat", "op f(a: f64[1,2,3,5], b: f64[1,2,7,5]) -> (y) { y[n,c,i in 0..10,j] = if i < 3 then a[n,c,i,j] else b[n,c,i-3,j] }"},
      {"split_first", "op f(x: f64[1,2,6,5]) -> (y) { y[n,c,i in 0..3,j] = x[n,c,i,j] }"},
      {"split_second", "op f(x: f64[1,2,6,5]) -> (y) { y[n,c,i in 0..3,j] = x[n,c,i+3,j] }"},
      {"split_rejoined", R"(op f(x: f64[1,2,6,5]) -> (y) {
         a[n,c,i in 0..3,j] = x[n,c,i,j]
         b[n,c,i in 0..3,j] = x[n,c,i+3,j]
         y[n,c,i in 0..6,j] = if i < 3 then a[n,c,i,j] else b[n,c,i-3,j] })"},
      {"split_swapped", R"(op f(x: f64[1,2,6,5]) -> (y) {
         a[n,c,i in 0..3,j] = x[n,c,i,j]
         b[n,c,i in 0..3,j] = x[n,c,i+3,j]
         y[n,c,i in 0..6,j] = if i < 3 then b[n,c,i,j] else a[n,c,i-3,j] })"},
      {"take", "op f(x: f64[4,5], ids: i32[100]) -> (y) { y[i in 0..100] = x[abs(ids[i])%20/5, abs(ids[i])%5] }"},
      {"softmax_of_dense", R"(op f(x: f64[4,5], w: f64[5,5]) -> (y) {
         e[i,j] = exp(sum(k: x[i,k] * w[j,k]))
         y[i,j] = e[i,j] / sum(k: e[i,k]) })", -1, 1},
  };
  for (int k = 1; k <= 3; ++k)
    for (int s = 1; s <= 3; ++s) {
      for (int d = 1; d <= 3; ++d) ops.push_back({fmt::format("conv_kernel{}_stride{}_dilation{}", k, s, d), convolution(k, s, d)});
      ops.push_back({fmt::format("max_pool_kernel{}_stride{}", k, s), max_pool(k, s)});
    }
  return ops;
}

std::vector<AnchorValue> halide_values() {
  return {
      {"polynomial_and_quotient", "op f(x: f64) -> (y) { y = x*x - 2*x + 5 + 3/x }", {{5}}, {}, {{8 - 3.0 / 25}}},
      {"rounding", "op f(x: f64) -> (y) { y = floor(x) + ceil(x) + round(x) }", {{2.3}}, {}, {{0}}},
      {"absolute_values", "op f(x: f64) -> (y) { y = 2*abs(x) + 3*abs(-x) }", {{-2.5}}, {}, {{-5}}},
      {"lerp", "op f(a: f64, b: f64, w: f64) -> (y) { y = a*(1 - w) + b*w }", {{2}, {6}, {0.1}}, {}, {{0.9}, {0.1}, {4}}},
      {"convolution_of_1_to_4", R"(op f(x: f64[4] const, k: f64[2]) -> (loss) {
         y[i in 0..4] = sum(r: x[i+r else 0] * k[r])
         loss = sum(i: y[i]^2) })",
       {{1, 2, 3, 4}, {2, 1}}, {}, {{60 * 2 + 40 * 1, 40 * 2 + 58 * 1}}},
      {"downsample_by_4", "op f(x: f64[10]) -> (y) { y[i in 0..2] = sum(r in 0..4: x[4*i+r]) }",
       {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}, {}, {{1, 1, 1, 1, 1, 1, 1, 1, 0, 0}}},
      {"upsample_by_4", "op f(x: f64[4]) -> (y) { y[i in 0..16] = x[i/4] }", {{1, 2, 3, 4}}, {}, {{4, 4, 4, 4}}},
      {"transpose", "op f(x: f64[2,3]) -> (y) { y[i in 0..3,j in 0..2] = x[j,i] }",
       {{1, 2, 3, 4, 5, 6}}, {{10, 40, 20, 50, 30, 60}}, {{10, 20, 30, 40, 50, 60}}},
      {"histogram_gather", "op f(x: f64[5], ids: i32[12]) -> (y) { y[i] = x[ids[i]] }",
       {{1, 2, 3, 4, 5}, {0, 1, 3, 2, 1, 3, 0, 3, 0, 2, 1, 3}}, {}, {{3, 3, 2, 4, 0}}},
      {"reversed_cumulative_sum",
       "op f(x: f64[5]) -> (y) { y[i in 0..5] = sum(k in 0..i+1: x[k]) }", {{1, 2, 3, 4, 5}}, {}, {{5, 4, 3, 2, 1}}},
      {"circle", "op f(x: f64[5,5]) -> (y) { y[i,j] = if (i - 2)^2 + (j - 2)^2 <= 1 then 2*x[i,j] else x[i,j] }",
       {std::vector<double>(25, 1)}, {}, {{1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1}}},
      {"repeat_edge", "op f(x: f64[2]) -> (y) { y[i in 0..3] = x[min(i, 1)] + x[min(i + 1, 1)] }", {{1, 2}}, {}, {{1, 5}}},
      {"constant_edge", "op f(x: f64[2]) -> (y) { y[i in 0..3] = x[i else 0] + x[i+1 else 0] }", {{1, 2}}, {}, {{1, 3 - 1}}},
      {"repeat_image", "op f(x: f64[2]) -> (y) { y[i in 0..3] = x[i%2] + x[(i+1)%2] }", {{1, 2}}, {}, {{3, 3}}},
      {"mirror_image", "op f(x: f64[2]) -> (y) { y[i in 0..3] = x[if i < 2 then i else 3 - i] + x[if i < 1 then i + 1 else 2 - i] }",
       {{1, 2}}, {}, {{2, 4}}},
      {"select_guard", "op f(x: f64[2]) -> (y) { y[i] = if x[i] > 0 then sqrt(x[i]) * 12 else 0 }", {{0, 1}}, {}, {{0, 6}}},
      // What Halide's gradients get wrong.
      {"diagonal", "op f(x: f64[4,4]) -> (y) { y[i in 0..4] = x[i,i] }", {std::vector<double>(16, 1)}, {{2, 3, 5, 7}},
       {{2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 5, 0, 0, 0, 0, 7}}},
      {"outer_diagonal",
       "op f(x: f64[2,3,2]) -> (y) { y[i in 0..2,j in 0..3] = x[i,j,i] }", {std::vector<double>(12, 1)}, {{1, 2, 3, 4, 5, 6}},
       {{1, 0, 2, 0, 3, 0, 0, 4, 0, 5, 0, 6}}},
      {"ties_of_two",
       "op f(a: f64[3], b: f64[3]) -> (y) { y[i] = max(a[i], b[i]) }", {{1, 1, 2}, {1, 3, 2}}, {}, {{0.5, 0, 0.5}, {0.5, 1, 0.5}}},
      {"ties_of_many", "op f(x: f64[3]) -> (y) { y = max(i: x[i]) }", {{1, 5, 5}}, {}, {{0, 0.5, 0.5}}},
      {"product_with_a_zero", "op f(x: f64[4]) -> (y) { y = prod(i: x[i]) }", {{2, 0, 3, 5}}, {}, {{0, 30, 0, 0}}},
      {"product_with_two_zeros", "op f(x: f64[4]) -> (y) { y = prod(i: x[i]) }", {{2, 0, 0, 5}}, {}, {{0, 0, 0, 0}}},
  };
}

namespace {

Array ones(const Program& p, TensorId t, const DimValues& dims) {
  Array a = zeros(p.tensor(t).type, shape_of(p, t, dims));
  std::ranges::fill(a.reals, 1);
  return a;
}

}  // namespace

Arrays anchor_data(const Program& p, double low, double high) {
  Arrays data;
  uint64_t state = 12345;  // Knuth's MMIX generator
  auto next = [&] { return static_cast<double>((state = state * 6364136223846793005u + 1442695040888963407u) >> 11) * 0x1p-53; };
  for (TensorId t : p.inputs) {
    Array a = zeros(p.tensor(t).type, shape_of(p, t, {}));
    for (double& v : a.reals) v = low + (high - low) * next();
    for (int64_t& v : a.integers) v = static_cast<int64_t>(100 * next());
    data[p.tensor(t).name] = a;
  }
  for (TensorId t : p.cotangents) data[p.tensor(t).name] = ones(p, t, {});
  return data;
}

Arrays anchor_data(const Program& p, const AnchorValue& v) {
  Arrays data = anchor_data(p, 0, 1);
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    Array& a = data.at(p.tensor(p.inputs[i]).name);
    if (a.real()) a.reals = v.inputs[i];
    else a.integers.assign(v.inputs[i].begin(), v.inputs[i].end());
  }
  for (size_t i = 0; i < v.cotangents.size(); ++i) data.at(p.tensor(p.cotangents[i]).name).reals = v.cotangents[i];
  return data;
}

}  // namespace xhat::testing
